"""Named algorithms: parts with the settings of their papers, and the grammar that reads both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedparity.core.algorithm import Algorithm
from fedparity.core.part import Part
from fedparity.errors import unknown
from fedparity.parts import PARTS, Momentum, Prox
from fedparity.spec import Spec, construct, parse, written


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


RECIPES: dict[str, Recipe] = {
    "fedavg": Recipe(_fedavg, "McMahan et al. 2017 (FedAvg)"),
    "fedprox": Recipe(_fedprox, Prox.paper),
    "fedavgm": Recipe(_fedavgm, Momentum.paper),
}


def algorithm(what: str | Algorithm | Sequence[Part]) -> Algorithm:
    """Return the algorithm that a text, a list of parts or an algorithm stands for.

    Examples
    --------
    >>> algorithm("fedprox(mu=0.5)+momentum").parts
    (Prox(mu=0.5), Momentum(beta=0.9, dampening=0.0))
    """
    if isinstance(what, Algorithm):
        return what
    if not isinstance(what, str):
        return Algorithm(what)
    parts: list[Part] = []
    for spec in parse(what):
        parts += _parts_of(spec)
    return Algorithm(parts, what)


def complete(what: Algorithm) -> str:
    """Return the algorithm as text with every setting of every part."""
    return "+".join(str(written(part.name, part)) for part in what.parts) or "fedavg"


def _parts_of(spec: Spec) -> tuple[Part, ...]:
    if spec.name in PARTS:
        return (construct("algorithm", spec, PARTS),)
    if spec.name in RECIPES:
        return construct("algorithm", spec, {name: r.parts for name, r in RECIPES.items()})
    raise unknown("algorithm", spec.name, [*PARTS, *RECIPES])
