"""The probability simplex."""

from __future__ import annotations

import torch
from torch import Tensor


def project(v: Tensor, mass: float | Tensor = 1.0, most: float | None = None) -> Tensor:
    """Return the Euclidean projection of ``v`` onto ``{p >= 0, sum p = mass}``.

    With ``most``, no entry of the result is larger than that (``most`` times the entries must reach
    the mass); it is ``clip(v - theta, 0, most)`` with the one ``theta`` of the right sum.

    With ``u`` the entries of ``v`` in descending order,
    ``rho = max{j : u_j + (mass - sum_{i<=j} u_i)/j > 0}``,
    ``theta = (sum_{i<=rho} u_i - mass)/rho``, the result is ``max(v - theta, 0)``.

    Examples
    --------
    >>> project(torch.tensor([0.5, 1.0, 0.0]))
    tensor([0.2500, 0.7500, 0.0000])
    """
    if most is not None:
        return _bounded(v, mass, most)
    v = v - v.max()  # the result is the same, and large entries do not swallow the mass
    u = v.sort(descending=True).values
    excess = u.cumsum(0) - mass
    count = torch.arange(1, len(v) + 1, dtype=v.dtype)
    rho = max(1, int((u - excess / count > 0).sum()))
    return (v - excess[rho - 1] / rho).clamp_min(0)


def _bounded(v: Tensor, mass: float | Tensor, most: float) -> Tensor:
    # The sum of the clipped entries falls with theta, and is linear between the points at which an
    # entry reaches a bound.
    points = torch.cat([v - most, v]).sort().values
    sums = (v - points[:, None]).clamp(0, most).sum(1)
    last = min(int((sums >= mass).sum()), len(points) - 1)
    first = max(last - 1, 0)
    fall = sums[first] - sums[last]
    share = (sums[first] - mass) / fall if fall > 0 else torch.zeros_like(fall)
    theta = points[first] + share.clamp(0, 1) * (points[last] - points[first])
    return (v - theta).clamp(0, most)
