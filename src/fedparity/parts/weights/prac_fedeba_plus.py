"""Prac-FedEBA+: FedEBA+ in one exchange."""

from __future__ import annotations

import math

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Finish, Loss, Part, Tensors, stacked
from fedparity.parts.weights.entropy import Entropy


@dataclass(frozen=True, config=STRICT)
class PracFedEBAPlus(Entropy):
    r"""FedEBA+ without a second exchange: the mean local gradient stands for the full one.

    With equal steps this is exactly FedAvg with weights

    .. math:: (1-\alpha)\,\mathrm{softmax}_\tau(F^{post}) + \alpha\,\mathrm{softmax}_\tau(F^{pre}),

    which is what is computed; for unequal steps the second term of client k is multiplied by
    :math:`\bar\tau/\tau_k`.

    Parameters
    ----------
    alpha
        0 is FedEBA on losses after training, 1 on losses before.
    tau, prior, floor, anneal, kappa
        See :class:`Entropy`.

    Notes
    -----
    Sent up: two floats more than FedAvg, the losses before and after training. The server learns
    them. The text of the paper speaks of the last round's gradient; its algorithm, and we, use the
    current round's.

    Examples
    --------
    >>> PracFedEBAPlus().alpha
    0.9

    References
    ----------
    Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and effective federated learning via
    entropy-based model. arXiv:2301.12407, 2023.
    """

    alpha: float = Field(default=0.9, ge=0, le=1, description="share of the losses before training")

    name = "prac_fedeba_plus"
    reports = {"before": Loss(), "after": Loss()}
    paper = "Wang et al. 2023 (Prac-FedEBA+)"
    learns = "its update, its training loss before and after"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss", "end_loss"})

    def neutral(self) -> Part:
        return PracFedEBAPlus(tau=math.inf)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"before": c.loss, "after": c.end_loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        after, before = self.softmax(up["after"], ctx), self.softmax(up["before"], ctx)
        steps = ctx.steps.double()
        mixed = (1 - self.alpha) * after + self.alpha * before * (steps[ctx.listed].mean() / steps)
        return mixed.to(w.dtype), s
