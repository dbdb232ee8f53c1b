"""FedwAvg, reconstructed: clients whose examples are forgotten count more."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Context, Finish, Part, Share, Tensors, stacked


@dataclass(frozen=True, config=STRICT)
class FedwAvg(Part):
    r"""Give weight to clients whose examples the model forgets. Reconstructed.

    .. math:: a_k = (1 - \alpha)\, w_k + \alpha \frac{\phi_k}{\sum_S \phi}

    with :math:`w_k` the weight it is given (by size, unless the experiment says otherwise) and
    :math:`\phi_k` the share of client k's training examples that were forgotten at least once: the
    model received at one evaluation got them right, and that of the next one wrong.

    Parameters
    ----------
    alpha
        How much forgetting counts; 0 keeps the weights.
    every
        A client evaluates the received model in rounds 1, 1 + ``every``, 1 + 2 ``every``, ...
    count_never
        Count examples that were never right as well.

    Notes
    -----
    Sent up: one float more than FedAvg, :math:`\phi_k`. The server learns it. A client keeps three
    numbers of each training example: whether it was right last, was ever right, and was ever
    forgotten. A client that is not asked in a round does not evaluate. For classification alone; of
    sequences each is as right as the share of its tokens that is. Where nothing was forgotten, the
    weights stay as given. Reconstructed: neither text nor code of the paper was at hand.

    Examples
    --------
    >>> FedwAvg(alpha=0.5).mixed(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.2]))
    tensor([0.2500, 0.7500])

    References
    ----------
    As a method to compare with in Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and
    effective federated learning via entropy-based model. arXiv:2301.12407, 2023.
    """

    alpha: float = Field(default=0.3, ge=0, le=1, description="how much forgetting counts")
    every: int = Field(default=1, ge=1, description="rounds from one evaluation to the next")
    count_never: bool = Field(default=False, description="count what was never right")

    name = "fedwavg"
    paper = "compared with in Wang et al. 2023 (FedwAvg)"
    reconstructed = True
    equalises = "forgetting"
    learns = "its update and how many of its examples are forgotten"
    reports = {"forgotten": Share()}
    by_example = frozenset({"right", "ever", "forgotten"})

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"right"})

    @property
    def softens(self) -> str:
        return "lower alpha"

    def neutral(self) -> Part:
        return FedwAvg(alpha=0.0)

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"right": x.new_zeros(()), "ever": x.new_zeros(()), "forgotten": x.new_zeros(())}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        kept = c.state
        if (c.round - 1) % self.every == 0:
            lost = (c.right < c.state["right"]).to(delta.dtype)
            kept = {
                "right": c.right,
                "ever": torch.maximum(c.state["ever"], c.right),
                "forgotten": torch.maximum(c.state["forgotten"], lost),
            }
        counted = kept["forgotten"].sum(-1)
        if self.count_never:
            counted = counted + c.n - (kept["ever"] > 0).sum(-1)
        return Finish(delta, {"forgotten": counted / c.n}, dict(kept))

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return self.mixed(w, ctx.drawn * up["forgotten"].to(w.dtype)), s

    def mixed(self, w: Tensor, forgotten: Tensor) -> Tensor:
        """Return the weights mixed with the shares of forgetting."""
        total = forgotten.sum()
        return (1 - self.alpha) * w + self.alpha * forgotten / total if total > 0 else w
