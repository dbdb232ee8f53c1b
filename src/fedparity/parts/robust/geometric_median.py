"""The geometric median of the updates, by smoothed Weiszfeld steps."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors
from fedparity.toolbox.products import Numbers, gram_matrix, mixture


@dataclass(frozen=True, config=STRICT)
class GeometricMedian(Part):
    r"""Go to the point of least summed distance to the updates.

    .. math:: z \approx \arg\min_z \sum_k a_k \|D_k - z\|, \qquad
              z \leftarrow \frac{\sum_k \beta_k D_k}{\sum_k \beta_k}, \quad
              \beta_k = \frac{a_k}{\max(\nu, \|D_k - z\|)}

    from the weighted mean on, and :math:`x \leftarrow x + A z` with :math:`A = \sum_k a_k`.

    Parameters
    ----------
    nu
        Distance below which an update counts no more; infinite is the weighted mean.
    iterations
        Weiszfeld steps.

    Notes
    -----
    Sent: nothing more than FedAvg. The weights given weigh the distances; their sum, 1 unless a
    part such as q-FFL fits its own step, is a factor on the result. Distances come from the
    products of the updates, in float64, so a step costs nothing in the size of the model, and there
    are 100 of them. The paper takes 3 (``rfa``), each a secure sum; a step brings the result only
    about m - 1 times nearer to the others, so that a very far update still shows after 3. Here the
    server needs individual updates.

    The price: a minority pulls with its weight however far away it is, but no farther, so the
    median stays with the majority where the mean would meet in between.

    Examples
    --------
    >>> updates = torch.tensor([[0.0], [1.0], [10.0]])
    >>> even = torch.full((3,), 1 / 3)
    >>> found, _ = GeometricMedian().combine(updates, even, {}, {}, None)
    >>> round(float(found[0]), 4)
    1.0

    References
    ----------
    Pillutla, Kakade, Harchaoui. Robust aggregation for federated learning. IEEE Transactions on
    Signal Processing, 2022.
    """

    nu: float = Field(
        default=1e-6, gt=0, allow_inf_nan=True, description="distance that counts no less"
    )
    iterations: int = Field(default=100, ge=1, description="Weiszfeld steps")

    name = "geometric_median"
    paper = "Pillutla et al. 2022 (RFA)"
    conflicts = {
        "signed_weights": "'geometric_median' weighs distances, and weights of '{other}' may be "
        "negative: use {other}(v_min=0)"
    }

    def neutral(self) -> Part:
        return GeometricMedian(nu=math.inf)

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        weights = w.double().numpy()
        total = float(weights.sum())
        if math.isinf(self.nu) or total == 0:
            return w @ deltas, s
        updates = deltas.numpy()
        gram = gram_matrix(updates)
        z = weights / total
        for _ in range(self.iterations):
            z = weights / np.maximum(self.nu, distances(gram, z))
            z /= z.sum()
        found = mixture(total * z, updates)
        return torch.from_numpy(found.astype(updates.dtype, copy=False)), s


def distances(gram: Numbers, z: Numbers) -> Numbers:
    """Return the distance of every row to the mixture ``z`` of them, from their products."""
    along = gram @ z
    found: Numbers = np.sqrt(np.maximum(gram.diagonal() - 2 * along + z @ along, 0.0))
    return found
