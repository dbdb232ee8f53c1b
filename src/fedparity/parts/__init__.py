"""All parts, by name. One explicit table: nothing registers itself."""

from __future__ import annotations

from fedparity.method import Part
from fedparity.parts.contrib.core_fed import CoreFed
from fedparity.parts.contrib.fedwavg import FedwAvg
from fedparity.parts.contrib.focus import Focus
from fedparity.parts.contrib.rank_core_fed import RankCoreFed
from fedparity.parts.contrib.scaff_pd import ScaffPD
from fedparity.parts.groups.fairfed import FairFed
from fedparity.parts.groups.fedfb import FedFB
from fedparity.parts.groups.fedminmax import FedMinMax
from fedparity.parts.local.lsr import LSR
from fedparity.parts.local.pgvc import PGVC
from fedparity.parts.local.prox import Prox
from fedparity.parts.local.scaffold import PVR, Scaffold
from fedparity.parts.local.sgd import FedSGD
from fedparity.parts.personal.alone import Local
from fedparity.parts.personal.apfl import APFL
from fedparity.parts.personal.bn import BN
from fedparity.parts.personal.ditto import Ditto
from fedparity.parts.personal.fedrep import FedRep
from fedparity.parts.personal.finetune import FineTune
from fedparity.parts.personal.lp_proj import LpProj
from fedparity.parts.private.client import DPClient
from fedparity.parts.private.losses import DPLosses
from fedparity.parts.private.paper import PaperDP
from fedparity.parts.private.sgd import DPSGD
from fedparity.parts.robust.cap import Cap
from fedparity.parts.robust.coordinate_median import CoordinateMedian
from fedparity.parts.robust.geometric_median import GeometricMedian
from fedparity.parts.robust.multi_krum import MultiKrum
from fedparity.parts.robust.norm_clip import NormClip
from fedparity.parts.robust.trimmed_mean import TrimmedMean
from fedparity.parts.server.adaptive import Adaptive
from fedparity.parts.server.fedfv import FedFV
from fedparity.parts.server.fedheal import FedHEAL
from fedparity.parts.server.fedlf import FedLF
from fedparity.parts.server.fedmdfg import FedMDFG
from fedparity.parts.server.fedmgda_plus import FedMGDAPlus
from fedparity.parts.server.momentum import Momentum
from fedparity.parts.server.nova import Nova
from fedparity.parts.server.varp import Varp
from fedparity.parts.weights.aaggff import AAggFF
from fedparity.parts.weights.afl import AFL
from fedparity.parts.weights.delta_fl import DeltaFL
from fedparity.parts.weights.eagle import Eagle
from fedparity.parts.weights.feddisco import FedDisco
from fedparity.parts.weights.fedeba import FedEBA
from fedparity.parts.weights.fedeba_plus import FedEBAPlus
from fedparity.parts.weights.fedfa import FedFa
from fedparity.parts.weights.gifair import Gifair
from fedparity.parts.weights.maxfl import MaxFL
from fedparity.parts.weights.prac_fedeba_plus import PracFedEBAPlus
from fedparity.parts.weights.propfair import PropFair
from fedparity.parts.weights.qffl import QFFL
from fedparity.parts.weights.term import TERM
from fedparity.parts.weights.uniform import Uniform

PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        AAggFF,
        AFL,
        APFL,
        Adaptive,
        BN,
        Cap,
        CoordinateMedian,
        CoreFed,
        DPClient,
        DPLosses,
        DPSGD,
        DeltaFL,
        Ditto,
        Eagle,
        FairFed,
        FedDisco,
        FedEBA,
        FedEBAPlus,
        FedFB,
        FedFV,
        FedFa,
        FedHEAL,
        FedLF,
        FedMDFG,
        FedMGDAPlus,
        FedMinMax,
        FedRep,
        FedSGD,
        FedwAvg,
        FineTune,
        Focus,
        GeometricMedian,
        Gifair,
        LSR,
        LpProj,
        Local,
        MaxFL,
        Momentum,
        MultiKrum,
        NormClip,
        Nova,
        PGVC,
        PVR,
        PaperDP,
        PracFedEBAPlus,
        PropFair,
        Prox,
        QFFL,
        RankCoreFed,
        ScaffPD,
        Scaffold,
        TERM,
        TrimmedMean,
        Uniform,
        Varp,
    )
}

__all__ = [
    "AFL",
    "APFL",
    "BN",
    "DPSGD",
    "LSR",
    "PARTS",
    "PGVC",
    "PVR",
    "QFFL",
    "TERM",
    "AAggFF",
    "Adaptive",
    "Cap",
    "CoordinateMedian",
    "CoreFed",
    "DPClient",
    "DPLosses",
    "DeltaFL",
    "Ditto",
    "Eagle",
    "FairFed",
    "FedDisco",
    "FedEBA",
    "FedEBAPlus",
    "FedFB",
    "FedFV",
    "FedFa",
    "FedHEAL",
    "FedLF",
    "FedMDFG",
    "FedMGDAPlus",
    "FedMinMax",
    "FedRep",
    "FedSGD",
    "FedwAvg",
    "FineTune",
    "Focus",
    "GeometricMedian",
    "Gifair",
    "Local",
    "LpProj",
    "MaxFL",
    "Momentum",
    "MultiKrum",
    "NormClip",
    "Nova",
    "PaperDP",
    "Part",
    "PracFedEBAPlus",
    "PropFair",
    "Prox",
    "RankCoreFed",
    "ScaffPD",
    "Scaffold",
    "TrimmedMean",
    "Uniform",
    "Varp",
]
