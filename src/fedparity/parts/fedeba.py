"""FedEBA, FedEBA+ and Prac-FedEBA+: maximum-entropy weights and alignment."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.core.part import STRICT, Client, Context, Fact, Finish, Part, Plan, Tensors
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


@dataclass(frozen=True, config=STRICT)
class FedEBA(Entropy):
    r"""Weight clients by a maximum-entropy softmax of their losses.

    .. math:: x \leftarrow x + \sum_k a_k D_k, \qquad a_k \propto q_k \exp(F_k/\tau)

    Parameters
    ----------
    signal
        ``post`` uses the loss of the trained local model on its own data (the paper's algorithms),
        ``pre`` that of the received model: how badly it serves the client.
    tau, prior, floor, anneal, kappa
        See :class:`Entropy`.

    Notes
    -----
    Sent up: one float more than FedAvg, the loss. The server learns it. With ``signal="pre"`` this
    is client-level TERM with t = 1/tau. The printed annealing divides by the total number of
    rounds; we use the current one. The temperature is clamped after annealing.

    Examples
    --------
    >>> FedEBA().tau
    0.1

    References
    ----------
    Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and effective federated learning via
    entropy-based model. arXiv:2301.12407, 2023.
    """

    signal: Literal["post", "pre"] = "post"

    name = "fedeba"
    paper = "Wang et al. 2023 (FedEBA)"

    @property
    def reads(self) -> frozenset[Fact]:
        return frozenset({"end_loss" if self.signal == "post" else "loss"})

    def neutral(self) -> Part:
        return FedEBA(tau=math.inf)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.end_loss if self.signal == "post" else c.loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return self.softmax(up["loss"], ctx).to(w.dtype), s


@dataclass(frozen=True, config=STRICT)
class FedEBAPlus(Entropy):
    r"""FedEBA with local gradients aligned to the fair one.

    Clients send the loss and gradient of the received model; with
    :math:`\tilde g = \sum_k \mathrm{softmax}_\tau(F^{pre})_k\, g_k` local steps descend along

    .. math:: h = (1-\alpha)\, g_k(y) + \alpha\, \tilde g

    (gradient branch), or, where the angle between the losses and the vector of ones is at most
    ``theta``, clients train plainly and the server mixes in their first steps :math:`s_k` (model
    branch): :math:`x \leftarrow x + (1-\alpha)\sum a_k D_k + \alpha c \sum q_k s_k`. The weights
    :math:`a_k` are FedEBA's on the losses after training.

    Parameters
    ----------
    alpha
        Strength of the alignment; 0 is FedEBA.
    theta
        Angle in degrees up to which the model branch is taken: 0 never, 90 always.
    scale
        c of the model branch: ``steps`` (the mean number of local steps), or ``literal`` (1).
    tau, prior, floor, anneal, kappa
        See :class:`Entropy`.

    Notes
    -----
    Sent up: d + 2 floats more than FedAvg (gradient, two losses), and d more in a model branch;
    sent down: d more. Two exchanges, with the same clients; one where theta is 90. The server
    learns each client's full gradient and its losses before and after training. Earlier versions of
    the paper print the angle switch, the current one only the gradient branch: theta=0 is that. The
    printed algorithm omits the aligned local step; Eq. 8 mixes a gradient with a displacement, we
    use displacements throughout.

    Examples
    --------
    >>> round(angle(torch.tensor([1.0, 2.0, 0.5])), 4)
    28.1255

    References
    ----------
    Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and effective federated learning via
    entropy-based model. arXiv:2301.12407, 2023.
    """

    alpha: float = Field(default=0.9, ge=0, le=1, description="strength of the alignment")
    theta: float = Field(default=0.0, ge=0, le=90, description="angle of the switch, degrees")
    scale: Literal["steps", "literal"] = "steps"

    name = "fedeba_plus"
    paper = "Wang et al. 2023 (FedEBA+)"
    learns = "its update, its full gradient, its training loss before and after"

    @property
    def reads(self) -> frozenset[Fact]:
        after: set[Fact] = {"end_loss"} if self.theta == 0 else {"end_loss", "first"}
        return frozenset(after | {"loss", "grad"} if self.theta < 90 else after)

    @property
    def hooks(self) -> frozenset[str]:
        unused = {"combine", "init_server"} if self.theta == 0 else set()
        return super().hooks - (unused if self.theta < 90 else {"measure", "plan", "grad"})

    def neutral(self) -> Part:
        return FedEBAPlus(alpha=0.0, tau=math.inf)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"gradient_branch": torch.zeros((), dtype=torch.int64)}

    def measure(self, c: Client) -> Tensors:
        return {"loss": c.loss, "grad": c.grad}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        aligned = self.theta == 0 or angle(probe["loss"]) > self.theta
        fair = self.softmax(probe["loss"], ctx).to(ctx.x.dtype) @ probe["grad"]
        strength = torch.tensor(self.alpha if aligned else 0.0, dtype=ctx.x.dtype)
        state = None if self.theta == 0 else {"gradient_branch": torch.tensor(int(aligned))}
        return Plan(shared={"fair": fair, "strength": strength}, state=state)

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        strength = c.down["strength"]
        return (1 - strength) * g + strength * c.down["fair"]

    def finish(self, delta: Tensor, c: Client) -> Finish:
        report = {"loss": c.end_loss}
        if self.theta > 0:
            report["first"] = c.first - c.anchor
        return Finish(delta, report)

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return self.softmax(up["loss"], ctx).to(w.dtype), s

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        if int(s["gradient_branch"]):
            return w @ deltas, s
        q = ctx.n.to(w.dtype) / ctx.n.sum() if self.prior == "size" else ctx.uniform
        c = ctx.steps.to(w.dtype).mean() if self.scale == "steps" else 1.0
        return (1 - self.alpha) * (w @ deltas) + self.alpha * c * (q @ up["first"]), s


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
    paper = "Wang et al. 2023 (Prac-FedEBA+)"
    learns = "its update, its training loss before and after"

    @property
    def reads(self) -> frozenset[Fact]:
        return frozenset({"loss", "end_loss"})

    def neutral(self) -> Part:
        return PracFedEBAPlus(tau=math.inf)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"before": c.loss, "after": c.end_loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        after, before = self.softmax(up["after"], ctx), self.softmax(up["before"], ctx)
        steps = ctx.steps.double()
        mixed = (1 - self.alpha) * after + self.alpha * before * (steps.mean() / steps)
        return mixed.to(w.dtype), s


def angle(losses: Tensor) -> float:
    """Return the angle between the losses and the vector of ones, in degrees."""
    losses = losses.double()
    norm = float(losses.norm())
    if norm == 0:
        return 0.0
    cosine = float(losses.sum()) / (math.sqrt(len(losses)) * norm)
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
