"""FedFB: right and wrong answers of a group count so that all groups are said yes to alike."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import one_hot

from fedparity.method import (
    STRICT,
    ByGroup,
    Client,
    Context,
    Finish,
    Loss,
    Plan,
    Share,
    Tensors,
    stacked,
)
from fedparity.parts.groups.weighted import OfAnswers, of_clients, over_mean


@dataclass(frozen=True, config=STRICT)
class FedFB(OfAnswers):
    r"""Equalise how often each group is told yes (demographic parity), by reweighing examples.

    An example of group z counts :math:`\lambda_z` times if its answer is no and
    :math:`2 - \lambda_z` times if it is yes. With :math:`m_{yz}` examples of answer y and group z
    and :math:`L_{yz}` the sum of their losses,

    .. math:: \lambda_z \leftarrow \mathrm{clip}\Bigl(\lambda_z +
              \frac{n\alpha}{m_z \sqrt t} (P_z - P_0),\, 0, 2\Bigr), \qquad
              P_z = \frac{m_{1z} - L_{1z} + L_{0z}}{m_z}

    for every group but the first, which moves against the sum of the others. :math:`P_z` is the
    share of group z that is told yes, with losses in place of mistakes.

    Parameters
    ----------
    group
        The kind of group, such as ``sex``.
    alpha
        Step of the weights; 0 is FedAvg by size.
    positive
        The class that is yes; all others are no.

    Notes
    -----
    Sent down: a float a group more than FedAvg. Sent up: four a group, share and summed loss of the
    client's training examples by answer and group, before local training. The server learns them,
    and the numbers of training examples by group. Clients train with the weights over their mean at
    the client, and the server averages by the sum of the weights of their examples, as the authors'
    code does with a solver that does not see the scale of a loss (Adam). Theirs adds the part of
    :math:`P_z` without losses once a client, where the condition has it once; counts the first
    client's model once whatever its weight; and bounds all groups by the size of the first. With
    partial participation sums are over the clients that answer; groups that none of them has stay.

    Examples
    --------
    >>> told_yes, larger = torch.tensor([0.5, 0.3]), torch.tensor([2.0, 2.0])
    >>> FedFB(alpha=0.1).shifted(torch.ones(2), told_yes, larger, round=1)
    tensor([1.0400, 0.9600])

    References
    ----------
    Zeng, Chen, Lee. Improving fairness via federated learning. arXiv:2110.15545, 2021.
    """

    group: str = Field(default="group", min_length=1, description="kind of group, such as sex")
    alpha: float = Field(default=0.3, ge=0, description="step of the weights")
    positive: int = Field(default=1, ge=0, description="class that is yes")

    name = "fedfb"
    paper = "Zeng et al. 2021 (FedFB)"
    equalises = "how often groups are told yes (demographic parity)"
    learns = "its update, and its training examples and losses by answer and group"
    reports = {"loss": Loss(), "share": Share()}

    @property
    def own_facts(self) -> Mapping[str, ByGroup]:
        def share(losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
            return one_hot(self._yes(target), 2).to(losses.dtype)

        def loss(losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
            return losses[:, None] * share(losses, output, target)

        return {
            "share_by_answer": ByGroup(self.group, share),
            "loss_by_answer": ByGroup(self.group, loss),
        }

    @property
    def softens(self) -> str:
        return "lower alpha"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"no": torch.ones(len(ctx.groups[self.group].names), dtype=torch.float64)}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(shared={"no": s["no"].to(ctx.x.dtype)})

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        return losses * self.example_weights(target, c)

    def example_weights(self, target: Tensor, c: Client) -> Tensor:
        weights = _both(c.down["no"])
        mean = (weights * c.share_by_answer).sum((-1, -2))
        weights = over_mean(weights, mean[..., None, None])
        place = self._yes(target) * weights.shape[-1] + c.groups[self.group]
        return weights.flatten(-2).gather(-1, place)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.loss_by_answer, "share": c.share_by_answer})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        share, n = up["share"].double(), (ctx.drawn * ctx.n).double()
        means = (share * _both(s["no"])).sum((1, 2))
        counts = torch.einsum("k,kyz->yz", n, share)
        losses = torch.einsum("k,kyz->yz", n, up["loss"].double())
        some = counts.sum(0) > 0.5  # shares are rounded
        told_yes = (counts[1] - losses[1] + losses[0]) / counts.sum(0).clamp_min(1)
        sizes = ctx.groups[self.group].counts.sum(0).double()
        larger = sizes.sum() / sizes.clamp_min(1)
        after = self.shifted(s["no"], told_yes, larger, ctx.round, some)
        return of_clients(w, ctx.n, means, ctx), {"no": after}

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"largest_weight_of_no": float(s["no"].max())}

    def shifted(
        self,
        no: Tensor,
        told_yes: Tensor,
        larger: Tensor,
        round: int,
        some: Tensor | None = None,
    ) -> Tensor:
        """Return the weights of those whose answer is no after a step, ``[G]``.

        ``larger`` is how much larger the whole is than each group; groups without ``some`` example
        stay.
        """
        apart = told_yes - told_yes[0]
        if some is not None:
            apart = torch.where(some & some[0], apart, 0)
        pull = torch.cat([-apart[1:].sum()[None], apart[1:]])
        step = self.alpha / math.sqrt(round)
        return (no + step * larger * pull).clamp(0, 2)

    def _yes(self, target: Tensor) -> Tensor:
        return (target == self.positive).long()


def _both(no: Tensor) -> Tensor:
    """Return the weights of examples by answer and group, ``[2, G]``."""
    return torch.stack([no, 2 - no])
