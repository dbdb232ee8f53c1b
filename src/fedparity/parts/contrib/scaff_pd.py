"""SCAFF-PD: the worst mixture of clients, by primal and dual steps with control variates."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import (
    STRICT,
    Affine,
    Client,
    Context,
    Loss,
    Part,
    Plan,
    Tensors,
    Vector,
)
from fedparity.toolbox.simplex import project


@dataclass(frozen=True, config=STRICT)
class ScaffPD(Part):
    r"""Solve :math:`\min_x \max_\lambda \sum_k \lambda_k F_k(x) - \psi(\lambda)` over the simplex.

    Clients send losses :math:`L` and gradients :math:`c_k` of the received model; then

    .. math::
        s &= (1 + \theta) L^t - \theta L^{t-1}, \qquad
        \lambda \leftarrow \arg\max_\lambda \langle s, \lambda\rangle - \psi(\lambda)
            - \tfrac1{2\sigma} \|\lambda - \lambda^t\|^2 \\
        y_k &\leftarrow y_k - \eta (g_k(y_k) - c_k + \textstyle\sum_j \lambda_j c_j), \qquad
        x \leftarrow x + \sum_k \lambda_k (y_k - x)

    with :math:`\psi(\lambda) = \frac{\rho}{2K} \sum_k (K\lambda_k - 1)^2`.

    Parameters
    ----------
    sigma
        Step of the mixture weights; 0 keeps them uniform.
    rho
        Strength of :math:`\psi`, which pulls the weights to the uniform ones; 0 is none.
    theta
        Extrapolation of the losses; 0 takes them as they are.
    worst
        Share of clients that the worst mixture may be made of: no weight exceeds 1 / (worst K), as
        for the conditional value at risk. None sets no bound.

    Notes
    -----
    Sent up: d + 1 floats more than FedAvg, the gradient and the loss; down: d more, the correction
    of a client's steps, made on the server. Two exchanges. The server learns each client's full
    gradient and its loss. Weights begin uniform; the previous losses of the first round are its
    own. Everyone is asked every round; where a client fails, those who answer keep the mass of
    their weights. With control variates of the same round, one full-batch step is AFL's.
    Reconstructed: neither the paper's text nor its code could be checked.

    Examples
    --------
    >>> part = ScaffPD(sigma=0.1, rho=0.0)
    >>> part.ascended(torch.tensor([0.5, 0.5]), torch.tensor([2.0, 1.0]), 2)
    tensor([0.5500, 0.4500])

    References
    ----------
    Yu, Karimireddy, Ma, Jordan. Scaff-PD: communication efficient fair and robust federated
    learning. arXiv:2307.13381, 2023.
    """

    sigma: float = Field(default=0.1, ge=0, description="step of the mixture weights")
    rho: float = Field(default=0.1, ge=0, description="pull to the uniform weights")
    theta: float = Field(default=1.0, ge=0, le=1, description="extrapolation of the losses")
    worst: float | None = Field(default=None, gt=0, le=1, description="share of worst clients")

    name = "scaff_pd"
    paper = "Yu et al. 2023 (SCAFF-PD)"
    reconstructed = True
    equalises = "worst mixture of clients (loss)"
    learns = "its update, its full gradient and its training loss"
    replaces = frozenset({"weigh"})
    needs = frozenset({"full_participation", "plain_sgd"})
    reports = {"loss": Loss(), "grad": Vector()}
    conflicts = {
        "control_variates": "'scaff_pd' corrects the steps, and so does '{other}': keep one",
        "start": "'scaff_pd' would correct parameters that '{other}' keeps on the clients: keep "
        "one",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"control_variates"})

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss", "grad"})

    @property
    def softens(self) -> str:
        return "raise rho"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {
            "mixture": torch.full((ctx.population,), 1 / ctx.population, dtype=torch.float64),
            "losses": torch.full((ctx.population,), torch.nan, dtype=torch.float64),
        }

    def probe(self, c: Client) -> Tensors:
        return {"loss": c.loss, "grad": c.grad}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        losses, old = probe["loss"].double(), s["mixture"][ctx.clients]
        last = s["losses"][ctx.clients]
        ahead = losses + self.theta * torch.where(last.isnan(), 0.0, losses - last)
        new = self.ascended(old, ahead, ctx.population)
        mean = _shares(new).to(ctx.x.dtype) @ probe["grad"]
        state = {
            "mixture": s["mixture"].index_copy(0, ctx.clients, new),
            "losses": s["losses"].index_copy(0, ctx.clients, losses),
        }
        return Plan(each={"shift": mean - probe["grad"]}, state=state)

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return g + c.down["shift"]

    def affine(self, c: Client) -> Affine:
        return Affine(shift=c.down["shift"])

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return _shares(s["mixture"][ctx.clients]).to(w.dtype), s

    def ascended(self, old: Tensor, losses: Tensor, population: int) -> Tensor:
        """Return the weights after one dual step; they keep their sum."""
        pulled = old + self.sigma * (losses + self.rho)
        centre = pulled / (1 + self.sigma * self.rho * population)
        most = None if self.worst is None else 1 / (self.worst * population)
        return project(centre, old.sum(), most)


def _shares(mixture: Tensor) -> Tensor:
    """Return the weights as a distribution; an even one if all are zero."""
    total = mixture.sum()
    return mixture / total if total > 0 else torch.full_like(mixture, 1 / len(mixture))
