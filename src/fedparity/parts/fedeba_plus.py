"""FedEBA+: FedEBA with gradients and models aligned."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.core.part import STRICT, Client, Context, Fact, Finish, Part, Plan, Tensors, stacked
from fedparity.parts.entropy import Entropy


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

    @stacked
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


def angle(losses: Tensor) -> float:
    """Return the angle between the losses and the vector of ones, in degrees."""
    losses = losses.double()
    norm = float(losses.norm())
    if norm == 0:
        return 0.0
    cosine = float(losses.sum()) / (math.sqrt(len(losses)) * norm)
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
