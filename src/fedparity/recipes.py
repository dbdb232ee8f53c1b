"""Named algorithms: parts with the settings of their papers, and the grammar that reads both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedparity.arguments import checked
from fedparity.errors import InputError
from fedparity.imports import Allowed, look_up, text_of
from fedparity.method import Part
from fedparity.method.algorithm import Algorithm
from fedparity.parts import (
    BN,
    PARTS,
    PGVC,
    PVR,
    QFFL,
    Adaptive,
    DPClient,
    FedEBAPlus,
    FedMGDAPlus,
    FedMinMax,
    FedSGD,
    GeometricMedian,
    Gifair,
    LpProj,
    Momentum,
    MultiKrum,
    Nova,
    PropFair,
    Prox,
    Uniform,
    Varp,
)
from fedparity.parts.local.pgvc import Mode, Rho
from fedparity.parts.weights.propfair import Beyond
from fedparity.spec import Spec, call, parse, written


@dataclass(frozen=True)
class Recipe:
    """An algorithm known by a name of its own."""

    parts: Callable[..., tuple[Part, ...]]
    paper: str


def _fedavg() -> tuple[Part, ...]:
    return ()


def _fedprox(mu: float = Prox().mu) -> tuple[Part, ...]:
    return (Prox(mu=mu),)


def _fedavgm(beta: float = Momentum().beta, dampening: float = 0.0) -> tuple[Part, ...]:
    return (Momentum(beta=beta, dampening=dampening),)


def _fedadam(
    eta: float = Adaptive().eta, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> tuple[Part, ...]:
    return (Adaptive(rule="adam", eta=eta, beta1=beta1, beta2=beta2, tau=tau),)


def _fedyogi(
    eta: float = Adaptive().eta, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> tuple[Part, ...]:
    return (Adaptive(rule="yogi", eta=eta, beta1=beta1, beta2=beta2, tau=tau),)


def _fedadagrad(
    eta: float = Adaptive().eta, beta1: float = 0.0, tau: float = 1e-3
) -> tuple[Part, ...]:
    return (Adaptive(rule="adagrad", eta=eta, beta1=beta1, tau=tau),)


def _fedvarp(scaled: bool = False) -> tuple[Part, ...]:
    return (Varp(scaled=scaled),)


def _fednova(mu: float = 0.0) -> tuple[Part, ...]:
    return (Prox(mu=mu), Nova()) if mu else (Nova(),)


def _fedbn() -> tuple[Part, ...]:
    return (BN(),)


def _fedpvr(
    layers: int | tuple[str, ...] = PVR().layers, option: Literal[1, 2] = 2
) -> tuple[Part, ...]:
    return (PVR(layers=layers, option=option),)


def _fedpgvc(
    layers: int | tuple[int, ...] | tuple[str, ...] = PGVC().layers,
    mode: Mode = "norm",
    level: float = PGVC().level,
    s_max: float = PGVC().s_max,
    kappa: float = PGVC().kappa,
    rho: Rho = "current",
    literal_server: float | None = None,
) -> tuple[Part, ...]:
    control = PGVC(layers, mode, level, s_max, kappa, rho, literal_server)
    return (control, Uniform())


def _fedeba_plus_paper(alpha: float = 0.9, tau: float = 0.1) -> tuple[Part, ...]:
    return (FedEBAPlus(alpha=alpha, tau=tau, floor=None, clip=None),)


def _fedmgda_plus_paper(eps: float = FedMGDAPlus().eps, eta: float = 1.0) -> tuple[Part, ...]:
    return (Uniform(), FedMGDAPlus(eps=eps, length="unit", eta=eta))


def _fedminmax_paper(
    group: str = FedMinMax().group, eta: float = FedMinMax().eta
) -> tuple[Part, ...]:
    return (FedMinMax(group=group, eta=eta, apply="loss"),)


def _gifair_paper(kappa: float = Gifair().kappa) -> tuple[Part, ...]:
    return (Gifair(kappa=kappa, apply="gradient"),)


def _krum(faulty: float = MultiKrum().faulty) -> tuple[Part, ...]:
    return (MultiKrum(faulty=faulty, single=True),)


def _propfair_paper(
    M: float = 2.0, eps: float = PropFair().eps, beyond: Beyond = "loss_over_M"
) -> tuple[Part, ...]:
    return (PropFair(M=M, eps=eps, beyond=beyond),)


def _qfedsgd(q: float = QFFL().q) -> tuple[Part, ...]:
    return (FedSGD(), QFFL(q=q))


def _rfa(nu: float = 1e-6, iterations: int = 3) -> tuple[Part, ...]:
    return (GeometricMedian(nu=nu, iterations=iterations),)


def _dp_fedavg(clip: float = 1.0, noise: float = 1.0) -> tuple[Part, ...]:
    return (DPClient(clip=clip, noise=noise),)


def _dp_fedavg_adaptive(
    clip: float = 0.1, noise: float = 1.0, quantile: float = 0.5
) -> tuple[Part, ...]:
    return (DPClient(clip=clip, noise=noise, quantile=quantile),)


def _lp_proj_paper(
    lam: float = 15.0, size: int = 60, p: float = 1.0, every: int = 20
) -> tuple[Part, ...]:
    return (Uniform(), LpProj(lam=lam, size=size, p=p, every=every))


RECIPES: dict[str, Recipe] = {
    "dp_fedavg": Recipe(_dp_fedavg, DPClient.paper),
    "dp_fedavg_adaptive": Recipe(_dp_fedavg_adaptive, "Andrew et al. 2021"),
    "fedadagrad": Recipe(_fedadagrad, Adaptive.paper),
    "fedadam": Recipe(_fedadam, Adaptive.paper),
    "fedavg": Recipe(_fedavg, "McMahan et al. 2017 (FedAvg)"),
    "fedavgm": Recipe(_fedavgm, Momentum.paper),
    "fedbn": Recipe(_fedbn, BN.paper),
    "fedeba_plus_paper": Recipe(_fedeba_plus_paper, FedEBAPlus.paper),
    "fedmgda_plus_paper": Recipe(_fedmgda_plus_paper, FedMGDAPlus.paper),
    "fedminmax_paper": Recipe(_fedminmax_paper, FedMinMax.paper),
    "fednova": Recipe(_fednova, Nova.paper),
    "fedpgvc": Recipe(_fedpgvc, PGVC.paper),
    "lp_proj_paper": Recipe(_lp_proj_paper, LpProj.paper),
    "fedprox": Recipe(_fedprox, Prox.paper),
    "fedpvr": Recipe(_fedpvr, PVR.paper),
    "fedvarp": Recipe(_fedvarp, Varp.paper),
    "fedyogi": Recipe(_fedyogi, Adaptive.paper),
    "gifair_paper": Recipe(_gifair_paper, Gifair.paper),
    "krum": Recipe(_krum, "Blanchard et al. 2017 (Krum)"),
    "propfair_paper": Recipe(_propfair_paper, PropFair.paper),
    "qfedsgd": Recipe(_qfedsgd, QFFL.paper),
    "rfa": Recipe(_rfa, GeometricMedian.paper),
}

KNOWN: dict[str, Callable[..., Part | tuple[Part, ...]]] = {
    **PARTS,
    **{name: recipe.parts for name, recipe in RECIPES.items()},
}
"""Every name of an algorithm, and what makes its parts."""


@checked
def algorithm(what: str | Algorithm | Part | Sequence[Part]) -> Algorithm:
    """Return the algorithm that a text, a part, a list of parts or an algorithm stands for.

    A part of your own is named by its import path: ``fedprox+mypackage.parts:Mine(a=1)``.

    Examples
    --------
    >>> algorithm("fedprox(mu=0.5)+momentum").parts
    (Prox(mu=0.5), Momentum(beta=0.9, dampening=0.0))
    """
    if isinstance(what, Algorithm):
        return what
    if not isinstance(what, str):
        return Algorithm(what)
    return read(what, Allowed.by(named=what))


def read(text: str, allowed: Allowed) -> Algorithm:
    """Return the algorithm that a text stands for, which may name the code that is allowed."""
    return Algorithm([part for term in parse(text) for part in _parts_of(term, allowed)], text)


def complete(what: Algorithm) -> str:
    """Return the algorithm as text with every setting of every part."""
    return "+".join(map(_written, what.parts)) or "fedavg"


def _written(part: Part) -> str:
    own = PARTS.get(part.name) is type(part)
    return str(written(part.name, part)) if own else text_of(part)


def _parts_of(term: Spec, allowed: Allowed) -> Sequence[Part]:
    found = call(term.name, look_up("algorithm", term, KNOWN, allowed, Part), term.settings)
    parts = found if isinstance(found, tuple | list) else (found,)
    if not all(isinstance(part, Part) for part in parts):
        raise InputError(f"'{term.name}' made a {type(found).__name__}: a part is expected")
    return parts
