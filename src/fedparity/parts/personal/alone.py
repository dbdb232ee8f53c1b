"""No federation: every client trains alone. The honest baseline."""

from __future__ import annotations

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Finish, Part, Tensors, stacked


@dataclass(frozen=True, config=STRICT)
class Local(Part):
    r"""Train each client on its own data from the shared start: :math:`v_k \leftarrow v_k + D_k`.

    Notes
    -----
    Sent: nothing; the shared parameters never move, and what is evaluated is each client's own
    model. The best validation loss along this path is the client's :math:`L^*`.

    Examples
    --------
    >>> Local().init_client(torch.tensor([1.0, 2.0]), None)
    {'own': tensor([1., 2.])}
    """

    name = "local"
    paper = "-"
    learns = "nothing"
    alone = True
    buffers = "local"

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"own_model"})

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"own": x}

    def start(self, x: Tensor, c: Client) -> Tensor:
        return c.state["own"]

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(torch.zeros_like(delta), state={"own": c.end})

    def personal(self, x: Tensor, c: Client) -> Tensor:
        return c.state["own"]
