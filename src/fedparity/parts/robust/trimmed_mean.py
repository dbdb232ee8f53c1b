"""The trimmed mean: in every coordinate the extremes are cut off."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class TrimmedMean(Part):
    r"""Average every coordinate without the largest and the smallest updates there.

    In each coordinate, updates in ascending order, with :math:`C_k` the share of weight up to and
    with client k,

    .. math:: x \leftarrow x + \frac{A}{1 - 2b} \sum_k \kappa_k D_k, \qquad
              \kappa_k = \big|[C_{k-1}, C_k] \cap [b, 1-b]\big|, \quad A = \textstyle\sum_k a_k

    Parameters
    ----------
    share
        :math:`b`, the share of weight cut off at each end; 0 is the weighted mean.

    Notes
    -----
    Sent: nothing more than FedAvg. The server needs individual updates. With equal weights and b a
    multiple of 1/m it drops b m updates at each end, as in the paper; otherwise the last one is
    dropped in part, so that the result has no jumps. As b nears 1/2 it is ``coordinate_median``.
    The sum of the weights, 1 unless a part such as q-FFL fits its own step, is a factor.

    The price: coordinates that only a minority moves, such as the outputs of classes that few
    clients have, are trimmed to what the majority does there, which is next to nothing.

    Examples
    --------
    >>> import torch
    >>> updates, even = torch.tensor([[0.0], [1.0], [2.0], [90.0]]), torch.full((4,), 0.25)
    >>> TrimmedMean(share=0.25).combine(updates, even, {}, {}, None)[0]
    tensor([1.5000])

    References
    ----------
    Yin, Chen, Kannan, Bartlett. Byzantine-robust distributed learning: towards optimal statistical
    rates. ICML 2018.
    """

    share: float = Field(default=0.1, ge=0, lt=0.5, description="weight cut off at each end")

    name = "trimmed_mean"
    paper = "Yin et al. 2018 (trimmed mean)"
    conflicts = {
        "signed_weights": "'trimmed_mean' cuts shares of weight, and weights of '{other}' may be "
        "negative: use {other}(v_min=0)"
    }

    def neutral(self) -> Part:
        return TrimmedMean(share=0.0)

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        total = float(w.double().sum())
        if self.share == 0 or total == 0:
            return w @ deltas, s
        order = torch.from_numpy(np.argsort(deltas.numpy(), 0))  # much faster than torch's sort
        values = deltas.gather(0, order)
        weights = (w.double() / total)[order]
        upper = weights.cumsum(0)
        lower = upper - weights
        kept = upper.clamp_max(1 - self.share) - lower.clamp_min(self.share)
        mean = (kept.clamp_min(0) * values).sum(0) / (1 - 2 * self.share)
        return (total * mean).to(deltas.dtype), s
