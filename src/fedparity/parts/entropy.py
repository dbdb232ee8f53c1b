"""Maximum-entropy weights of losses: what the FedEBA family shares."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.core.part import STRICT, Context, Part, Weights
from fedparity.errors import InputError

Annealing = Literal["none", "linear", "concave", "convex"]
Prior = Literal["uniform", "size"]


@dataclass(frozen=True, config=STRICT)
class Entropy(Part):
    r"""Maximum-entropy weights of losses: :math:`a_k \propto q_k \exp(F_k/\tau)`.

    Parameters
    ----------
    tau
        Temperature: large is uniform, small is the worst client alone.
    prior
        :math:`q_k`: ``uniform``, or the share of examples (``size``).
    floor
        Smallest weight allowed; raises the temperature where it must. None allows any, and so does
        a ``size`` prior under which a client starts below it.
    anneal, kappa
        Fall of the temperature with the round r = 1, 2, ..: ``linear``
        :math:`\tau/(1+\kappa(r-1))`, ``concave`` with exponent 1/2 and ``convex`` with exponent 3
        on the denominator.
    """

    tau: float = Field(
        default=0.1, gt=0, allow_inf_nan=True, description="temperature of the softmax"
    )
    prior: Prior = "uniform"
    floor: float | None = Field(default=1e-6, gt=0, lt=1, description="smallest weight allowed")
    anneal: Annealing = "none"
    kappa: float = Field(default=0.01, ge=0, description="speed of annealing")

    name = "entropy"
    paper = "Wang et al. 2023 (FedEBA+)"
    equalises = "loss (loss parity)"
    learns = "its update and its training loss"
    replaces = frozenset({"weigh"})

    @property
    def own_weights(self) -> Weights:
        return self.prior

    @property
    def softens(self) -> str:
        return "raise tau"

    def validate(self, ctx: Context) -> None:
        if self.prior == "uniform" and self.floor is not None and self.floor * ctx.cohort >= 1:
            raise InputError(
                f"'{self.name}': {ctx.cohort} weights cannot all be above floor={self.floor:g}"
            )

    def temperature(self, losses: Tensor, q: Tensor, round: int) -> float:
        """Return the annealed temperature, raised where a weight would fall under the floor."""
        power = {"none": 0.0, "linear": 1.0, "concave": 0.5, "convex": 3.0}[self.anneal]
        tau = self.tau / math.pow(1 + self.kappa * (round - 1), power)
        lowest = float(q.min())
        if self.floor is None or self.floor >= lowest:
            return tau
        return max(tau, float(losses.max() - losses.min()) / math.log(lowest / self.floor))

    def softmax(self, losses: Tensor, ctx: Context) -> Tensor:
        """Return the weights of these losses, in float64."""
        losses = losses.double()
        q = ctx.n.double() if self.prior == "size" else torch.ones_like(losses)
        q = q / q.sum()
        tau = self.temperature(losses, q, ctx.round)
        return torch.softmax(q.log() + losses / tau, 0)
