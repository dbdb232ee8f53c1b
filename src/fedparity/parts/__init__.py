"""All parts, by name. One explicit table: nothing registers itself."""

from __future__ import annotations

from fedparity.method import Part
from fedparity.parts.local.lsr import LSR
from fedparity.parts.local.pgvc import PGVC
from fedparity.parts.local.prox import Prox
from fedparity.parts.local.scaffold import PVR, Scaffold
from fedparity.parts.local.sgd import FedSGD
from fedparity.parts.personal.alone import Local
from fedparity.parts.personal.bn import BN
from fedparity.parts.personal.ditto import Ditto
from fedparity.parts.server.adaptive import Adaptive
from fedparity.parts.server.fedfv import FedFV
from fedparity.parts.server.fedmgda_plus import FedMGDAPlus
from fedparity.parts.server.momentum import Momentum
from fedparity.parts.server.nova import Nova
from fedparity.parts.server.varp import Varp
from fedparity.parts.weights.afl import AFL
from fedparity.parts.weights.eagle import Eagle
from fedparity.parts.weights.fedeba import FedEBA
from fedparity.parts.weights.fedeba_plus import FedEBAPlus
from fedparity.parts.weights.prac_fedeba_plus import PracFedEBAPlus
from fedparity.parts.weights.qffl import QFFL
from fedparity.parts.weights.uniform import Uniform

PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        AFL,
        Adaptive,
        BN,
        Ditto,
        Eagle,
        FedEBA,
        FedEBAPlus,
        FedFV,
        FedMGDAPlus,
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
    "Ditto",
    "Eagle",
    "FedEBA",
    "FedEBAPlus",
    "FedFV",
    "FedMGDAPlus",
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
