"""FedRep: a shared body, and a head of each client's own."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layers, Layout
from fedparity.method import STRICT, Client, Context, Finish, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class FedRep(Part):
    r"""Train the client's own head with the body fixed, then the body with the head fixed.

    .. math::
        h \leftarrow h - \eta\, \nabla_h F_k(b, h) \ \text{first}, \qquad
        b \leftarrow b - \eta\, \nabla_b F_k(b, h) \ \text{then};

    the bodies are averaged, the heads stay.

    Parameters
    ----------
    layers
        The head: how many of the last layers, or their places or names. 0 is FedAvg, all of them is
        training alone.
    share
        Share of a round's local steps that train the head, rounded down; at least one of two or
        more does, and at least one trains the body.

    Notes
    -----
    Sent: less than FedAvg by the head, both ways (in the simulator its slots are zero). The server
    learns each client's update of the body. A client that has never taken part has the initial
    head. Plain SGD, since momentum or decay would move what is fixed.

    Examples
    --------
    >>> FedRep(layers=0).neutral()
    FedRep(layers=0, share=0.5)

    References
    ----------
    Collins, Hassani, Mokhtari, Shakkottai. Exploiting shared representations for personalized
    federated learning. ICML 2021.
    """

    layers: int | tuple[int, ...] | tuple[str, ...] = Field(
        default=1, description="layers of the head, by count, place or name"
    )
    share: float = Field(default=0.5, gt=0, lt=1, description="share of the steps for the head")

    name = "fedrep"
    paper = "Collins et al. 2021 (FedRep)"
    equalises = "accuracy, by a head for each client"
    learns = "its update of the body"
    needs = frozenset({"plain_sgd"})
    behind = {
        "grad": "'fedrep' holds still what '{other}' behind it would move: write '{other}' first"
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"masks_update", "own_layers"})

    def neutral(self) -> Part:
        return FedRep(layers=0)

    def validate(self, ctx: Context) -> None:
        head = _head(ctx.layout, self.layers)
        if ctx.solver.steps == 1 and 0 < len(head) < ctx.layout.size:
            raise InputError(
                "'fedrep' trains the head, then the body, and there is one local step: take more"
            )

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"head": x[_head(layout, self.layers)]}

    def start(self, x: Tensor, c: Client) -> Tensor:
        return self.personal(x, c)

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        head = c.layout.mask(self.layers)
        if head.all() or not head.any():
            return g
        for_head = (self.share * c.steps).floor().clamp_min(1).minimum(c.steps - 1)
        return torch.where(head == (c.step < for_head), g, 0.0)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        head = _head(c.layout, self.layers)
        return Finish(delta.index_fill(0, head, 0.0), state={"head": c.end.index_select(0, head)})

    def personal(self, x: Tensor, c: Client) -> Tensor:
        return x.index_copy(0, _head(c.layout, self.layers), c.state["head"])


def _head(layout: Layout, layers: Layers) -> Tensor:
    """Return the places of the head in the flat vector."""
    return torch.nonzero(layout.mask(layers)).flatten()
