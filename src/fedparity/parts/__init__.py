"""All parts, by name. One explicit table: nothing registers itself."""

from __future__ import annotations

from fedparity.core.part import Part
from fedparity.parts.afl import AFL
from fedparity.parts.eagle import Eagle
from fedparity.parts.local import Local
from fedparity.parts.momentum import Momentum
from fedparity.parts.prox import Prox
from fedparity.parts.qffl import QFFL

PARTS: dict[str, type[Part]] = {
    part.name: part for part in (AFL, Eagle, Local, Momentum, Prox, QFFL)
}

__all__ = ["AFL", "PARTS", "QFFL", "Eagle", "Local", "Momentum", "Part", "Prox"]
