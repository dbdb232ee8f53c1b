"""Maximum-entropy weights of losses: what the FedEBA family shares."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Loss, Part, Weights

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
        Smallest weight allowed, as a share of the client's :math:`q_k`: with m clients and a
        uniform prior no weight is below ``floor / m``, and none is more than ``1 / floor`` times
        another. The temperature is raised where it must. 1 is the prior itself; None allows any
        weight.
    anneal, kappa
        Fall of the temperature with the round r = 1, 2, ..: ``linear``
        :math:`\tau/(1+\kappa(r-1))`, ``concave`` with exponent 1/2 and ``convex`` with exponent 3
        on the denominator.
    """

    tau: float = Field(
        default=0.1, gt=0, allow_inf_nan=True, description="temperature of the softmax"
    )
    prior: Prior = "uniform"
    floor: float | None = Field(
        default=0.5, gt=0, le=1, description="smallest weight, to the equal share"
    )
    anneal: Annealing = "none"
    kappa: float = Field(default=0.01, ge=0, description="speed of annealing")

    name = "entropy"
    paper = "Wang et al. 2023 (FedEBA+)"
    equalises = "loss (loss parity)"
    learns = "its update and its training loss"
    replaces = frozenset({"weigh"})
    reports = {"loss": Loss()}

    @property
    def own_weights(self) -> Weights | None:
        return self.prior

    @property
    def softens(self) -> str:
        return "raise tau" if self.floor is None else "raise floor"

    def temperature(self, losses: Tensor, round: int) -> float:
        r"""Return the annealed temperature, raised where a weight could fall under the floor.

        At :math:`(F_{max} - F_{min}) / \ln(1/floor)` no weight is below ``floor`` of its prior,
        because :math:`\sum_j q_j \exp((F_j - F_k)/\tau) \le \exp((F_{max} - F_{min})/\tau)`.
        """
        power = {"none": 0.0, "linear": 1.0, "concave": 0.5, "convex": 3.0}[self.anneal]
        tau = self.tau / math.pow(1 + self.kappa * (round - 1), power)
        if self.floor is None:
            return tau
        if self.floor == 1:
            return math.inf
        return max(tau, float(losses.max() - losses.min()) / -math.log(self.floor))

    def softmax(self, losses: Tensor, ctx: Context) -> Tensor:
        """Return the weights of these losses, in float64."""
        losses = losses.double()
        q = ctx.n.double() if self.prior == "size" else torch.ones_like(losses)
        q = q * ctx.drawn
        q = q / q.sum()
        tau = self.temperature(losses, ctx.round)
        return torch.softmax(q.log() + losses / tau, 0)
