"""FOCUS: several models on the server, of which every client uses a mixture of its own."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import (
    STRICT,
    Client,
    Context,
    Finish,
    Mixture,
    Part,
    Plan,
    Served,
    Share,
    Tensors,
    Vector,
)

ONE_MODEL = frozenset({"start", "clean", "combine", "step", "move"})
"""Hooks of parts that see the update of one model."""
STEPS = frozenset({"loss", "second", "grad", "examples"})


@dataclass(frozen=True, config=STRICT)
class Focus(Part):
    r"""Train M models by expectation and maximisation, and predict with each client's mixture.

    .. math::
        \pi_{km} \leftarrow \frac{\pi_{km} e^{-F_k(w_m)}}{\sum_j \pi_{kj} e^{-F_k(w_j)}}, \qquad
        w_m \leftarrow \frac{\sum_k p_k \pi_{km} \theta_{km}}{\sum_k p_k \pi_{km}}

    where :math:`\theta_{km}` is :math:`w_m` after client k's local training. Client k is evaluated
    with the mixture :math:`\sum_m \pi_{km}\, p(y \mid x; w_m)` of predicted probabilities.

    Parameters
    ----------
    models
        How many there are, M. 1 is FedAvg.
    spread
        Standard deviation of the normal numbers that tell the other models from the first at the
        start; equal ones would stay equal.
    clamp
        Largest difference of two :math:`\log \pi_{km}` of a client; without one an assignment
        hardens round by round until nothing can change it.

    Notes
    -----
    Sent: M - 1 further models each way and M shares up. The server learns a client's update of
    every model and which models fit it. A round computes M times the local steps and M loss passes.
    The weights :math:`p_k` are the experiment's, or those of parts before this one; the paper's are
    uniform. It is made for full participation; absent clients keep their shares, and those never
    asked mix all models alike. Parts that act on the steps or updates of one model are refused.
    Reconstructed: neither the paper's text nor its code could be checked.

    Examples
    --------
    >>> [value.shape for value in Focus(models=3).init_client(torch.zeros(5), None).values()]
    [torch.Size([3])]

    References
    ----------
    Chu et al. FOCUS: fairness via agent-awareness for federated learning on heterogeneous data.
    arXiv:2207.10265, 2022.
    """

    models: int = Field(default=2, ge=1, description="models on the server")
    spread: float = Field(default=0.1, gt=0, description="how far apart they start")
    clamp: float = Field(default=20.0, gt=0, description="largest difference of log shares")

    name = "focus"
    paper = "Chu et al. 2022 (FOCUS)"
    reconstructed = True
    equalises = "excess loss over the best for each kind of client (FAA)"
    learns = "its update of every model, and which models fit it"
    reports = {"models": Vector(), "share": Share()}
    conflicts = {
        "weighs_updates": "'focus' averages by shares of the weights, and those of '{other}' are "
        "no distribution: keep one"
    }
    behind = {
        "weigh": "'focus' mixes weights for every model, of which '{other}' behind it would change "
        "the first's alone: write '{other}' first"
    }

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss"})

    @property
    def points(self) -> dict[str, frozenset[str]]:
        return {str(m): frozenset({"loss"}) for m in range(1, self.models)}

    def neutral(self) -> Part:
        return Focus(models=1)

    def validate(self, ctx: Context) -> None:
        for part in ctx.parts:
            steps = bool(part.hooks & STEPS) and not part.everywhere
            if part is not self and (steps or part.hooks & ONE_MODEL):
                raise InputError(
                    f"'focus' trains several models, of which '{part.name}' would treat the first "
                    "alone: keep one"
                )
        if ctx.layout.buffers:
            raise InputError(
                "'focus' would give all its models the BatchNorm statistics of the first: use a "
                "model without BatchNorm"
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        noise = ctx.noise("focus", (self.models - 1) * len(x)).view(-1, len(x))
        return {"models": x + self.spread * noise.to(x.dtype)}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"log_pi": x.new_full((self.models,), -math.log(self.models))}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(shared={"models": s["models"]})

    def at(self, c: Client) -> Tensors:
        return {str(m): c.down["models"][m - 1] for m in range(1, self.models)}

    def tracks(self, c: Client) -> Tensors:
        return self.at(c)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        others = range(1, self.models)
        losses = torch.stack([c.loss, *(c.points[str(m)]["loss"] for m in others)])
        log_pi = c.state["log_pi"] - losses
        log_pi = (log_pi - log_pi.amax()).clamp_min(-self.clamp).log_softmax(0)
        moved = c.down["models"]
        if self.models > 1:
            moved = torch.stack([c.ends[str(m)] for m in others]) - moved
        return Finish(delta, {"models": moved, "share": log_pi.exp()}, {"log_pi": log_pi})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        share = w[:, None] * up["share"]
        share = share / share.sum(0)
        moved = torch.einsum("km,kmd->md", share[:, 1:], up["models"])
        return share[:, 0], {"models": s["models"] + ctx.server_lr * moved}

    def serve(self, x: Tensor, s: Tensors) -> Served:
        return Served(x, {"models": s["models"]})

    def mixture(self, x: Tensor, c: Client) -> Mixture:
        return Mixture(torch.cat([x[None], c.down["models"]]), c.state["log_pi"].exp())
