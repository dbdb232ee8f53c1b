"""FedHEAL: updates that go where they usually go, and clients that are far from done count more."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Context, Finish, Norm, Part, Tensors, Vector, stacked


@dataclass(frozen=True, config=STRICT)
class FedHEAL(Part):
    r"""Leave out what goes against its usual sign, and give weight to those whose rest is long.

    With :math:`h_{kj}` the share of client k's rounds in which its update of parameter j was not
    upwards, and :math:`c_{kj}` that share or the rest of it, whichever is of the sign now,

    .. math:: M_{kj} = [c_{kj} > \tau], \qquad
              \Delta_k \leftarrow (1 - \beta) \Delta_k + \beta \frac{r_k}{\sum_S r}, \qquad
              a_k \leftarrow a_k + \Delta_k, \qquad
              x_j \leftarrow x_j + \frac{\sum_S a_k M_{kj} D_{kj}}{\sum_S a_k M_{kj}}

    where :math:`r_k` is the sum over the tensors of the model of the length of :math:`M_k D_k`.

    Parameters
    ----------
    threshold
        :math:`\tau`: how often an update must have had its sign. Below 0 nothing is left out.
    beta
        How much a round's lengths count; 0 keeps equal weights.

    Notes
    -----
    Sent up: d + 1 more floats than FedAvg, which parameters are left out (a bit each would do) and
    :math:`r_k`. The server learns them. A client keeps d + 1 floats. In its first round nothing is
    left out. Weights begin equal and are normalised over those who answer; with partial
    participation a client's rounds are those it took part in, where the authors' code, made for
    full participation, counts all, and lengths are of those who answer. A parameter that all leave
    out stays. Weights that the experiment or parts before this one give have no say.

    Examples
    --------
    >>> FedHEAL().kept(torch.tensor([1.0, -1.0]), torch.tensor([0.9, 0.9]))
    tensor([0., 1.])

    References
    ----------
    Chen, Huang, Ye. Fair federated learning under domain skew with local consistency and domain
    diversity. CVPR 2024.
    """

    threshold: float = Field(default=0.3, ge=-1, le=1, description="least share of the usual sign")
    beta: float = Field(default=0.4, ge=0, le=1, description="how much a round's lengths count")

    name = "fedheal"
    paper = "Chen et al. 2024 (FedHEAL)"
    equalises = "accuracy (by the lengths of what updates agree on)"
    learns = "its update, which parameters it leaves out, and the length of the rest"
    replaces = frozenset({"weigh"})
    reports = {"mask": Vector(), "length": Norm()}

    @property
    def softens(self) -> str:
        return "lower beta"

    def neutral(self) -> Part:
        return FedHEAL(threshold=-1.0, beta=0.0)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        each = torch.full((ctx.population,), 1 / ctx.cohort, dtype=torch.float64)
        return {"weights": each, "moves": torch.zeros_like(each)}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"falls": torch.zeros_like(x), "rounds": x.new_zeros(())}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        rounds, falls = c.state["rounds"], c.state["falls"]
        mask = torch.where((rounds > 0)[..., None], self.kept(delta, falls), 1.0)
        kept = delta * mask
        lengths = [kept[..., slot.start : slot.stop].norm(dim=-1) for slot in c.layout.slots]
        seen = falls * rounds[..., None] + (delta <= 0).to(delta.dtype)
        state = {"falls": seen / (rounds + 1)[..., None], "rounds": rounds + 1}
        return Finish(kept, {"mask": mask, "length": torch.stack(lengths).sum(0)}, state)

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        lengths = up["length"].double()
        total = (lengths * ctx.drawn).sum()
        share = lengths / total if total > 0 else torch.zeros_like(lengths)
        moves = (1 - self.beta) * s["moves"][ctx.clients] + self.beta * share
        weights = s["weights"][ctx.clients] + moves
        state = {
            "weights": s["weights"].index_copy(0, ctx.clients, weights),
            "moves": s["moves"].index_copy(0, ctx.clients, moves),
        }
        used = weights * ctx.drawn
        return (used / used.sum()).to(w.dtype), state

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        total = w @ up["mask"]
        return torch.where(total > 0, w @ (deltas * up["mask"]) / total, 0), s

    def kept(self, delta: Tensor, falls: Tensor) -> Tensor:
        """Return a 1 for each parameter whose update has its usual sign, else a 0."""
        usual = torch.where(delta <= 0, falls, 1 - falls)
        return (usual > self.threshold).to(delta.dtype)
