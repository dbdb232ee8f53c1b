"""What several parts have in common, to be derived from."""

from __future__ import annotations

from torch import Tensor

from fedparity.method.client import Client
from fedparity.method.hints import stacked
from fedparity.method.part import Part
from fedparity.method.reports import Loss
from fedparity.method.returned import Finish


class TellsLoss(Part):
    """A part whose clients tell their training loss before local training: ``up["loss"]``.

    Derive from it and write the server's half, such as ``weigh``.
    """

    learns = "its update and its training loss"
    reports = {"loss": Loss()}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss"})

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.loss})
