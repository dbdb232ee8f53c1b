"""AFL: the mixture of clients the model does worst on."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Served, TellsLoss, Tensors, Weights
from fedparity.toolbox.simplex import project


@dataclass(frozen=True, config=STRICT)
class AFL(TellsLoss):
    r"""Minimise the loss of the worst mixture: :math:`\min_x \max_\lambda \sum_k \lambda_k F_k`.

    .. math:: x \leftarrow x + \sum_k \lambda_k D_k, \qquad
              \lambda \leftarrow \mathrm{Proj}(\lambda + \eta F)

    Parameters
    ----------
    eta
        Step of the mixture weights.
    order
        ``model_first`` aggregates with the old weights (q-FFL's and easyFL's code),
        ``weights_first`` with the new ones (PropFair's and AAggFF's code).
    initial
        Weights before the first round: ``uniform`` or by ``size``.
    average
        Evaluate and keep the average of the models after each round, of which the paper's theory
        speaks and which easyFL reports, instead of the last. The rounds themselves are the same.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training. The server learns
    each client's loss. The paper asks every client every round; with partial participation only the
    weights of those who answer move, keeping their total mass, and they are aggregated with their
    share of it. Who was drawn twice is aggregated twice; its weight moves once. Buffers, such as
    BatchNorm's statistics, are those of the last model in any case.

    Examples
    --------
    >>> AFL().eta
    0.1

    References
    ----------
    Mohri, Sivek, Suresh. Agnostic federated learning. ICML 2019.
    """

    eta: float = Field(default=0.1, ge=0, description="step of the mixture weights")
    order: Literal["model_first", "weights_first"] = "model_first"
    initial: Literal["uniform", "size"] = "uniform"
    average: bool = Field(default=False, description="evaluate and keep the average over rounds")

    name = "afl"
    paper = "Mohri et al. 2019 (AFL)"
    equalises = "worst client (loss)"
    replaces = frozenset({"weigh"})

    @property
    def own_weights(self) -> Weights:
        return self.initial

    @property
    def softens(self) -> str:
        return "lower eta"

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.average else super().hooks - {"serve"}

    def neutral(self) -> Part:
        return AFL(eta=0.0)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        each = ctx.sizes.double() if self.initial == "size" else torch.ones(ctx.population).double()
        past = {"past": torch.zeros_like(x), "rounds": torch.tensor(0)} if self.average else {}
        return {"mixture": each / each.sum(), **past}

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        old = s["mixture"][ctx.clients]
        new = project(old + self.eta * up["loss"].double(), mass=old.sum())
        state = {"mixture": s["mixture"].index_copy(0, ctx.clients, new)}
        if self.average:
            # The model of this round is not known yet: the last one joins those before it.
            past = s["past"] if s["rounds"] == 0 else self.serve(ctx.x, s).x
            state |= {"past": past, "rounds": s["rounds"] + 1}
        used = ctx.drawn * (old if self.order == "model_first" else new)
        if float(used.sum()) == 0:
            return w, state
        return (used / used.sum()).to(w.dtype), state

    def serve(self, x: Tensor, s: Tensors) -> Served:
        rounds = int(s["rounds"])
        return Served(s["past"] + (x - s["past"]) / rounds if rounds else x)
