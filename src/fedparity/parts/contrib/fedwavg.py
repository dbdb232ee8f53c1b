"""FedwAvg, reconstructed: clients whose examples are forgotten count more."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import one_hot, pad

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Context, Count, Finish, Part, Tensors, stacked
from fedparity.method.facts import PerExample

SLOTS = 128
"""Classes whose right answers a client remembers; further ones share a slot."""


@dataclass(frozen=True, config=STRICT)
class FedwAvg(Part):
    r"""Give weight to clients whose examples the model forgets. Reconstructed.

    .. math:: a_k = (1 - \alpha)\, w_k + \alpha \frac{\phi_k}{\sum_S \phi}, \qquad
              \phi_k \leftarrow \phi_k + \sum_c \max(0,\, r_{kc}^{old} - r_{kc})

    with :math:`w_k` the weight it is given (by size, unless the experiment says otherwise) and
    :math:`r_{kc}` the share of client k's training examples that are of class c and that the
    received model gets right; the old one is of the last round that the client took part in.

    Parameters
    ----------
    alpha
        How much forgetting counts; 0 keeps the weights.

    Notes
    -----
    Sent up: one float more than FedAvg, :math:`\phi_k`, the forgetting of an example so far. The
    server learns it. A client keeps 129 floats: what is right by class, of which further classes
    share a place, and :math:`\phi_k`. For classification alone. Reconstructed: neither text nor
    code of the paper was at hand. It is said to count the examples that are right at one evaluation
    and wrong at the next; what clients keep has one shape for all here, so that the count is by
    class, and misses an example forgotten while another of its class is learnt. Where nothing was
    forgotten, the weights stay as given.

    Examples
    --------
    >>> import torch
    >>> FedwAvg(alpha=0.5).mixed(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.2]))
    tensor([0.2500, 0.7500])

    References
    ----------
    As a method to compare with in Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and
    effective federated learning via entropy-based model. arXiv:2301.12407, 2023.
    """

    alpha: float = Field(default=0.3, ge=0, le=1, description="how much forgetting counts")

    name = "fedwavg"
    paper = "compared with in Wang et al. 2023 (FedwAvg)"
    reconstructed = True
    equalises = "forgetting"
    learns = "its update and how much its examples are forgotten"
    reports = {"events": Count()}

    @property
    def own_facts(self) -> Mapping[str, PerExample]:
        return {"right_by_class": right_by_class}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"right_by_class"})

    @property
    def softens(self) -> str:
        return "lower alpha"

    def neutral(self) -> Part:
        return FedwAvg(alpha=0.0)

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"right": x.new_zeros(SLOTS), "events": x.new_zeros(())}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        known = c.right_by_class
        now = pad(known, (0, SLOTS - known.shape[-1]))
        events = c.state["events"] + (c.state["right"] - now).clamp_min(0).sum(-1)
        return Finish(delta, {"events": events}, {"right": now, "events": events})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return self.mixed(w, up["events"].to(w.dtype)), s

    def mixed(self, w: Tensor, events: Tensor) -> Tensor:
        """Return the weights mixed with the shares of forgetting."""
        total = events.sum()
        return (1 - self.alpha) * w + self.alpha * events / total if total > 0 else w


def right_by_class(losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
    """Return for every example a 1 in the place of its class if it is right, ``[B, places]``.

    There are as many places as classes, and at most :data:`SLOTS`.
    """
    one = output.numel() == target.numel()  # a single score tells two classes apart
    guess = output.reshape(target.shape) > 0 if one else output.argmax(-1)
    right = guess == target
    places = 2 if one else min(SLOTS, output.shape[-1])
    return one_hot(target % SLOTS, places) * right[..., None]
