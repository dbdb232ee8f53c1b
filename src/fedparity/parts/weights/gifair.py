"""GIFAIR-FL: clients of high losses count more, by the rank of their loss alone."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import STRICT, Affine, Client, Context, Part, Plan, TellsLoss, Tensors


@dataclass(frozen=True, config=STRICT)
class Gifair(TellsLoss):
    r"""Minimise the mean loss and the differences of losses of all pairs of clients.

    The objective :math:`\sum_k p_k F_k + \lambda \sum_{i<j} |F_i - F_j|` multiplies the loss of
    client k by

    .. math:: 1 + \frac{\lambda r_k}{p_k}, \qquad r_k = \sum_j \mathrm{sign}(F_k - F_j), \qquad
              \lambda = \kappa\, \frac{\min_k p_k}{K - 1}

    Parameters
    ----------
    kappa
        Strength, as a share of the one at which a multiplier can reach 0; 0 is FedAvg.
    apply
        ``displacement`` multiplies the update of a client, whatever rule made it, by the ranks of
        the losses told with it; ``gradient`` every local gradient (the paper's: its learning rate),
        by the ranks of the round before. Adam and clipping would undo that, so they are refused.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training; down: nothing
    (``displacement``) or one float, the multiplier (``gradient``). The server learns the loss. The
    last known losses of absent clients count; a client whose loss is not known, and all before the
    first one is, have no rank. Equal losses have no order: codes that sort break ties as it comes.
    The authors' code goes by the mean loss of the last local training, and draws the first order at
    random. Every client is a group of its own (the paper's individual fairness).

    Examples
    --------
    >>> Gifair.ranks(torch.tensor([1.0, 2.0, 0.5])).tolist()
    [0.0, 2.0, -2.0]

    References
    ----------
    Yue, Nouiehed, Al Kontar. GIFAIR-FL: a framework for group and individual fairness in federated
    learning. INFORMS Journal on Data Science 2023.
    """

    kappa: float = Field(default=0.5, ge=0, lt=1, description="strength, as a share of the largest")
    apply: Literal["displacement", "gradient"] = "displacement"

    name = "gifair"
    paper = "Yue et al. 2023 (GIFAIR-FL)"
    equalises = "loss (loss parity)"

    @property
    def hooks(self) -> frozenset[str]:
        unused = {"plan", "grad"} if self.apply == "displacement" else set[str]()
        return super().hooks - unused

    @property
    def traits(self) -> frozenset[str]:
        unlike = "weighs_gradients" if self.apply == "gradient" else "weighs_updates"
        return frozenset({unlike})

    @property
    def softens(self) -> str:
        return "lower kappa"

    def neutral(self) -> Part:
        return Gifair(kappa=0.0)

    def validate(self, ctx: Context) -> None:
        undone = "Adam" if ctx.solver.optimizer == "adam" else "clipping"
        if self.apply == "gradient" and (undone == "Adam" or ctx.solver.clip is not None):
            raise InputError(
                f"'gifair': {undone} undoes a weight on the gradient: use apply='displacement'"
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"losses": torch.full((ctx.population,), torch.nan, dtype=torch.float64)}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(each={"multiplier": self._multipliers(s["losses"], ctx)})

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return c.down["multiplier"] * g

    def affine(self, c: Client) -> Affine:
        return Affine(scale=c.down["multiplier"])

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        losses = s["losses"].index_copy(0, ctx.clients, up["loss"].double())
        if self.apply == "displacement":
            w = w * self._multipliers(losses, ctx)
        return w, {"losses": losses}

    @staticmethod
    def ranks(losses: Tensor) -> Tensor:
        """Return how many losses are smaller minus how many are larger; 0 where one is unknown."""
        return (losses[:, None] - losses).sign().nan_to_num(0.0).sum(1)

    def _multipliers(self, losses: Tensor, ctx: Context) -> Tensor:
        p = ctx.shares.double()
        lam = self.kappa * p.min() / max(1, ctx.population - 1)
        return (1 + lam * self.ranks(losses) / p)[ctx.clients].to(ctx.x.dtype)
