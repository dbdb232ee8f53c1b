"""FedFa: clients of low accuracy and of frequent participation count more, with momentum."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Finish, Part, Share, Tensors, stacked

TINY = 1e-6
"""Inside the logarithms."""


@dataclass(frozen=True, config=STRICT)
class FedFa(Part):
    r"""Weigh clients by the information in their accuracy and in how often they took part.

    .. math:: a_k = \alpha \frac{A_k}{\sum_S A} + (1 - \alpha) \frac{B_k}{\sum_S B}, \qquad
              A_k = -\log_2 \frac{ACC_k}{\sum_S ACC}, \quad
              B_k = -\log_2 \Bigl(1 - \frac{f_k}{\sum_S f}\Bigr)

    With :math:`d = \sum_S a_k D_k` the server moves by
    :math:`M \leftarrow \gamma M + (1-\gamma) d`.

    Parameters
    ----------
    alpha
        Share of the accuracies in the weights; the rest is that of the participation counts.
    gamma
        Momentum of the server; 0 moves by :math:`d`.
    momentum
        ``ema`` is the rule above; ``heavy`` is :math:`M \leftarrow \gamma M + d`; ``easyfl`` moves
        by :math:`d - \eta_l M` with the mean of ``ema``, as a public code does.

    Notes
    -----
    Sent up: one float more than FedAvg, the accuracy on training examples before local training.
    The server learns it; in how many rounds a client took part, this one included, it knows, and
    who was drawn twice stands in the sums twice. The paper's
    momentum on clients is the solver's: ``momentum=0.9``. 1e-6 is added inside both logarithms, and
    a client that answers alone has the weight 1. The paper was not at hand: formulas are those of
    public code, of which one normalises the accuracies in place of their information.

    Examples
    --------
    >>> acc, counts = torch.tensor([0.9, 0.5, 0.7]), torch.tensor([3, 1, 2])
    >>> FedFa().information(acc, counts).numpy().round(4).tolist()
    [0.3959, 0.2834, 0.3207]

    References
    ----------
    Huang et al. Fairness and accuracy in horizontal federated learning. Information Sciences 2022
    (arXiv:2012.10069).
    """

    alpha: float = Field(default=0.5, ge=0, le=1, description="share of the accuracies")
    gamma: float = Field(default=0.5, ge=0, lt=1, description="momentum of the server")
    momentum: Literal["ema", "heavy", "easyfl"] = "ema"

    name = "fedfa"
    paper = "Huang et al. 2022 (FedFa)"
    equalises = "accuracy"
    learns = "its update and its training accuracy"
    replaces = frozenset({"weigh"})
    reports = {"accuracy": Share()}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"accuracy"})

    @property
    def softens(self) -> str:
        return "lower alpha"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        counts = torch.zeros(ctx.population, dtype=torch.int64)
        return {"counts": counts, "moment": torch.zeros_like(x)}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"accuracy": c.accuracy})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        counts = s["counts"].index_add(0, ctx.clients, torch.ones_like(ctx.clients))
        each = self.information(up["accuracy"][ctx.listed], counts[ctx.clients][ctx.listed])
        a = torch.zeros_like(w).index_add(0, ctx.listed, each.to(w.dtype))
        return a, {**s, "counts": counts}

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        fresh = 1.0 if self.momentum == "heavy" else 1 - self.gamma
        moment = self.gamma * s["moment"] + fresh * direction
        moved = direction - ctx.lr * moment if self.momentum == "easyfl" else moment
        return moved, {**s, "moment": moment}

    def information(self, accuracy: Tensor, counts: Tensor) -> Tensor:
        """Return the weights of these accuracies and counts, in float64."""
        if len(counts) == 1:
            return torch.ones(1, dtype=torch.float64)
        rare = -(_shares(accuracy.double()) + TINY).log2().clamp_max(0)
        often = -(1 - _shares(counts.double()) + TINY).log2().clamp_max(0)
        return self.alpha * _shares(rare) + (1 - self.alpha) * _shares(often)


def _shares(values: Tensor) -> Tensor:
    """Return each value over their sum; equal shares where all are 0."""
    total = values.sum()
    return values / total if total > 0 else torch.full_like(values, 1 / len(values))
