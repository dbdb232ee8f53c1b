"""Norm clipping: no update is longer than a multiple of the median length."""

from __future__ import annotations

import math

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class NormClip(Part):
    r"""Shorten the longest updates to a multiple of the round's median length.

    .. math:: D_k \leftarrow D_k \min\Big(1, \frac{c\,\mathrm{median}_j \|D_j\|}{\|D_k\|}\Big)

    Parameters
    ----------
    factor
        :math:`c`; infinite is no clipping.

    Notes
    -----
    Sent: nothing more than FedAvg. The server needs individual updates. Weights are left alone, and
    every rule that combines updates works on the shortened ones. The median counts every client
    once; of an even number it is the mean of the middle two. What clients send besides their
    updates, such as SCAFFOLD's control variates, is not clipped.

    The price: a client unlike the others, or with more local steps, has a long update for good
    reasons and is shortened all the same.

    Examples
    --------
    >>> import torch
    >>> NormClip(factor=2.0).clean(torch.tensor([[1.0], [1.0], [9.0]]), None, {}, None)[0].tolist()
    [[1.0], [1.0], [2.0]]

    References
    ----------
    Sun, Kairouz, Suresh, McMahan. Can you really backdoor federated learning? arXiv:1911.07963,
    2019.
    """

    factor: float = Field(
        default=1.0, gt=0, allow_inf_nan=True, description="longest update, in median lengths"
    )

    name = "norm_clip"
    paper = "Sun et al. 2019 (norm clipping)"

    def neutral(self) -> Part:
        return NormClip(factor=math.inf)

    def clean(
        self, deltas: Tensor, w: Tensor, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensors]:
        if math.isinf(self.factor):
            return deltas, w, s
        lengths = deltas.double().norm(dim=1)
        bound = self.factor * lengths.quantile(0.5)
        kept = (bound / lengths.clamp_min(bound)).nan_to_num(1.0)  # 0/0: all are zero
        return deltas * kept[:, None].to(deltas.dtype), w, s
