"""The median of the updates, coordinate by coordinate."""

from __future__ import annotations

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors

HALF = 1e-9
"""By which a sum of weights may miss one half and is still taken for it."""


@dataclass(frozen=True, config=STRICT)
class CoordinateMedian(Part):
    r"""Take the weighted median of the updates in every coordinate.

    .. math:: x \leftarrow x + A\, \mathrm{median}_k(D_k; a), \qquad A = \textstyle\sum_k a_k

    Notes
    -----
    Sent: nothing more than FedAvg. The server needs individual updates. The median is the value at
    which the weights of the smaller updates reach one half; where they do so exactly, it is the
    mean with the next one, as for an even number of equal weights. The sum of the weights, 1 unless
    a part such as q-FFL fits its own step, is a factor. No setting of it is FedAvg: it is the end
    of ``trimmed_mean``, whose other end is.

    The price: in a coordinate that fewer than half of the clients move, the model stays. With few
    classes a client that is most of the last layer; such clients gain nothing from the others.

    Examples
    --------
    >>> updates, even = torch.tensor([[0.0], [1.0], [2.0], [90.0]]), torch.full((4,), 0.25)
    >>> CoordinateMedian().combine(updates, even, {}, {}, None)[0]
    tensor([1.5000])

    References
    ----------
    Yin, Chen, Kannan, Bartlett. Byzantine-robust distributed learning: towards optimal statistical
    rates. ICML 2018.
    """

    name = "coordinate_median"
    paper = "Yin et al. 2018 (coordinate median)"
    conflicts = {
        "signed_weights": "'coordinate_median' looks for half of the weight, and weights of "
        "'{other}' may be negative: use {other}(v_min=0)"
    }

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        total = w.double().sum()
        if total == 0:
            return torch.zeros_like(deltas[0]), s
        order = torch.from_numpy(np.argsort(deltas.numpy(), 0))  # much faster than torch's sort
        values = deltas.gather(0, order)
        reached = (w.double() / total)[order].cumsum(0)
        lower = (reached < 0.5 - HALF).sum(0, keepdim=True)
        upper = (reached <= 0.5 + HALF).sum(0, keepdim=True).clamp_max(len(deltas) - 1)
        middle = (values.gather(0, lower) + values.gather(0, upper))[0] / 2
        return total.to(deltas.dtype) * middle, s
