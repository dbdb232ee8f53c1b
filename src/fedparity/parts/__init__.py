"""All parts, by name. One explicit table: nothing registers itself."""

from __future__ import annotations

from fedparity.core.part import Part
from fedparity.parts.adaptive import Adaptive
from fedparity.parts.afl import AFL
from fedparity.parts.bn import BN
from fedparity.parts.eagle import Eagle
from fedparity.parts.fedeba import FedEBA
from fedparity.parts.fedeba_plus import FedEBAPlus
from fedparity.parts.fedfv import FedFV
from fedparity.parts.local import Local
from fedparity.parts.lsr import LSR
from fedparity.parts.momentum import Momentum
from fedparity.parts.nova import Nova
from fedparity.parts.pgvc import PGVC
from fedparity.parts.prac_fedeba_plus import PracFedEBAPlus
from fedparity.parts.prox import Prox
from fedparity.parts.qffl import QFFL
from fedparity.parts.scaffold import PVR, Scaffold
from fedparity.parts.sgd import FedSGD
from fedparity.parts.uniform import Uniform
from fedparity.parts.varp import Varp

PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        AFL,
        Adaptive,
        BN,
        Eagle,
        FedEBA,
        FedEBAPlus,
        FedFV,
        FedSGD,
        LSR,
        Local,
        Momentum,
        Nova,
        PGVC,
        PVR,
        PracFedEBAPlus,
        Prox,
        QFFL,
        Scaffold,
        Uniform,
        Varp,
    )
}

__all__ = [
    "AFL",
    "BN",
    "LSR",
    "PARTS",
    "PGVC",
    "PVR",
    "QFFL",
    "Adaptive",
    "Eagle",
    "FedEBA",
    "FedEBAPlus",
    "FedFV",
    "FedSGD",
    "Local",
    "Momentum",
    "Nova",
    "Part",
    "PracFedEBAPlus",
    "Prox",
    "Scaffold",
    "Uniform",
    "Varp",
]
