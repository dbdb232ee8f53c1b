"""A cap on aggregation weights: no client decides alone."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Cap(Part):
    r"""Let no client have more than a share of the weight.

    .. math:: a_k \leftarrow \min(\sigma A, a_k + \theta), \qquad A = \textstyle\sum_k a_k,

    with the one :math:`\theta \ge 0` that leaves the sum as it is: what is cut off the largest
    weights is poured out evenly over the others (water-filling), and these are the nearest weights
    under the cap.

    Parameters
    ----------
    share
        :math:`\sigma`, the largest share of all weight; 1 is no cap.

    Notes
    -----
    Sent: nothing more than FedAvg. It acts on the weights of the parts before it, so that a
    temperature or a step that is too sharp cannot hand the round to one client. With fewer than
    :math:`1/\sigma` clients a round the cap cannot hold and is refused; where so few answer because
    others dropped out, all get the same weight.

    The price: a client that other parts single out, because the model serves it worst, gets less
    of what they meant to give it.

    Examples
    --------
    >>> capped(torch.tensor([0.7, 0.2, 0.1]), 0.5)
    tensor([0.5000, 0.3000, 0.2000])
    """

    share: float = Field(default=0.3, gt=0, le=1, description="largest share of all weight")

    name = "cap"
    paper = "-"
    conflicts = {
        "signed_weights": "'cap' bounds shares of a whole, and weights of '{other}' may be "
        "negative: use {other}(v_min=0)"
    }

    @property
    def fewest(self) -> int:
        return math.ceil(1 / self.share - 1e-9)

    def neutral(self) -> Part:
        return Cap(share=1.0)

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return capped(w, self.share), s


def capped(w: Tensor, share: float) -> Tensor:
    """Return the nearest weights of the same sum of which none is above a share of it.

    Where the shares of all cannot make a whole, all weights are equal.
    """
    total = w.double().sum()
    most = share * total
    if share * len(w) <= 1:
        return torch.full_like(w, float(total) / len(w))
    ascending = w.double().sort().values
    # With the j least below the cap, theta = (A - (m - j) most - sum of the j least) / j; the right
    # j is the largest whose last weight stays below the cap.
    count = torch.arange(1, len(w) + 1, dtype=torch.float64)
    theta = (total - (len(w) - count) * most - ascending.cumsum(0)) / count
    below = (ascending + theta <= most).nonzero()
    return (w + theta[int(below.max())]).clamp_max(most).to(w.dtype)
