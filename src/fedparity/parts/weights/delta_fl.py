"""Delta-FL: only the clients in the tail of the losses train."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Loss, Part, Plan, Tensors


@dataclass(frozen=True, config=STRICT)
class DeltaFL(Part):
    r"""Minimise the mean loss of the worst share :math:`\theta` of the clients: the superquantile.

    The cohort tells its losses at the received model. With :math:`p` its weights and

    .. math:: Q = \min \{F_k : \textstyle\sum_{F_j \le F_k} p_j \ge 1 - \theta\},

    those with :math:`F_k \ge Q` train and are averaged by :math:`p`; the others rest.

    Parameters
    ----------
    theta
        Share of the weight in the tail: 1 is FedAvg, towards 0 it is the worst client alone.
    exact_boundary
        Give clients at Q what is left of :math:`\theta` after those above, as in the
        superquantile; otherwise (the paper's algorithm) they count in full.

    Notes
    -----
    Sent up: one float, the training loss, in an exchange of its own before training; those who
    rest neither train nor send a model. The server learns the loss, and of those who rest nothing
    more. The weights are the experiment's, by size or uniform, and clients of equal losses are
    treated alike. Other methods may weigh those who train: ``delta_fl+qffl``. The experiment's
    least number of replies holds for the tail too.

    Examples
    --------
    >>> tail = DeltaFL(theta=0.5).shares(torch.tensor([1.0, 2.0, 0.5]), torch.full((3,), 1 / 3))
    >>> tail.tolist()
    [1.0, 1.0, 0.0]

    References
    ----------
    Laguel, Pillutla, Malick, Harchaoui. A superquantile approach to federated learning with
    heterogeneous devices. CISS 2021. Pillutla, Laguel, Malick, Harchaoui. Federated learning with
    superquantile aggregation for heterogeneous data. Machine Learning 2023.
    """

    theta: float = Field(default=0.5, gt=0, le=1, description="share of the weight in the tail")
    exact_boundary: bool = Field(default=False, description="split the client at the quantile")

    name = "delta_fl"
    paper = "Laguel et al. 2021 (Delta-FL)"
    equalises = "worst client (the tail of the losses)"
    learns = "its update and its training loss"
    reports = {"loss": Loss()}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss"})

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.exact_boundary else super().hooks - {"weigh"}

    @property
    def softens(self) -> str:
        return "raise theta"

    def neutral(self) -> Part:
        return DeltaFL(theta=1.0)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"shares": torch.ones(ctx.population, dtype=torch.float64)}

    def asks(self, s: Tensors) -> bool:
        return self.theta < 1

    def probe(self, c: Client) -> Tensors:
        return {"loss": c.loss}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        if "loss" not in probe:
            return Plan()
        shares = self.shares(probe["loss"].double(), ctx.prior.double())
        return Plan(
            state={"shares": s["shares"].index_copy(0, ctx.clients, shares)}, trains=shares > 0
        )

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        tail = w * s["shares"][ctx.clients].to(w.dtype)
        return tail / tail.sum(), s

    def shares(self, losses: Tensor, p: Tensor) -> Tensor:
        """Return of each client's weight the share that is in the tail, in [0, 1]."""
        order = losses.argsort()
        within = p[order].cumsum(0) >= (1 - self.theta) * p.sum() - 1e-12
        quantile = losses[order][within][0]
        tail = (losses >= quantile).to(p.dtype)
        if not self.exact_boundary:
            return tail
        at = losses == quantile
        left = self.theta * p.sum() - p[losses > quantile].sum()
        left = left.where(left > 1e-12, 0.0)
        return tail.where(~at, (left / p[at].sum()).clamp_max(1.0))
