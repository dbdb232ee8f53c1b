"""The probability simplex."""

from __future__ import annotations

import torch
from torch import Tensor


def project(v: Tensor, mass: float | Tensor = 1.0) -> Tensor:
    """Return the Euclidean projection of ``v`` onto ``{p >= 0, sum p = mass}``.

    With ``u`` the entries of ``v`` in descending order,
    ``rho = max{j : u_j + (mass - sum_{i<=j} u_i)/j > 0}``,
    ``theta = (sum_{i<=rho} u_i - mass)/rho``, the result is ``max(v - theta, 0)``.

    Examples
    --------
    >>> project(torch.tensor([0.5, 1.0, 0.0]))
    tensor([0.2500, 0.7500, 0.0000])
    """
    v = v - v.max()  # the result is the same, and large entries do not swallow the mass
    u = v.sort(descending=True).values
    excess = u.cumsum(0) - mass
    count = torch.arange(1, len(v) + 1, dtype=v.dtype)
    rho = max(1, int((u - excess / count > 0).sum()))
    return (v - excess[rho - 1] / rho).clamp_min(0)
