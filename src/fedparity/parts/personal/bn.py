"""FedBN: normalisation layers stay on the clients."""

from __future__ import annotations

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Finish, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class BN(Part):
    r"""Keep the parameters and statistics of BatchNorm layers local; average everything else.

    Notes
    -----
    Sent: less than FedAvg by the parameters of these layers, both ways (in the simulator the slots
    are zero). Layers are chosen by type, not by name. A client is evaluated with its own layers; a
    global test is of the shared initial ones and means little. Without BatchNorm this is FedAvg.

    Examples
    --------
    >>> BN().buffers
    'local'

    References
    ----------
    Li et al. FedBN: federated learning on non-IID features via local batch normalization.
    ICLR 2021.
    """

    name = "bn"
    paper = "Li et al. 2021 (FedBN)"
    learns = "its update outside BatchNorm layers"
    buffers = "local"

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"masks_update", "own_layers"})

    def neutral(self) -> Part:
        return BN()

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"own": x[layout.normalisation()]}

    def start(self, x: Tensor, c: Client) -> Tensor:
        return self.personal(x, c)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        own = torch.nonzero(c.layout.normalisation()).flatten()
        state = {"own": c.end.index_select(0, own)}
        return Finish(delta.index_fill(0, own, 0.0), state=state)

    def personal(self, x: Tensor, c: Client) -> Tensor:
        own = torch.nonzero(c.layout.normalisation()).flatten()
        return x.index_copy(0, own, c.state["own"])
