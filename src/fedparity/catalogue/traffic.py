"""What an algorithm sends in a round, counted in a round that is really run.

A tiny federation runs two rounds with two sizes of one model; the tensors that pass the door to the
clients in the second round are counted. What grows with the model is told from what does not by
comparing the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
from torch import Tensor

from fedparity.data import Federation
from fedparity.engines.engine import intraop
from fedparity.errors import FedparityError
from fedparity.learning.layout import Layout
from fedparity.learning.solver import Solver
from fedparity.learning.task import Classification
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Down, Replies, Tensors
from fedparity.run.experiment import Experiment
from fedparity.run.lstar import SPLITS
from fedparity.run.rounds import Rounds
from fedparity.run.watching import Silent

CLIENTS = 3
WIDTHS = (3, 5)
"""Hidden units of the two models."""
MOST_MODELS = 4
Counts = dict[tuple[str, str], int]
"""Numbers a client by direction and part."""


@dataclass(frozen=True)
class Amount:
    """Numbers sent to or by one client: whole models, last layers, and single numbers.

    Examples
    --------
    >>> print(Amount(models=1, scalars=2))
    d + 2
    """

    models: int = 0
    layers: tuple[int, ...] = ()
    """Each entry stands for the parameters of so many of the last layers."""
    scalars: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.models + other.models, self.layers + other.layers, self.scalars + other.scalars
        )

    def __str__(self) -> str:
        return self._text(1)

    def bytes(self) -> str:
        """Return the amount in bytes of 32-bit numbers, such as ``4d + 8``."""
        return self._text(4)

    def _text(self, one: int) -> str:
        """Return the amount where a single number counts ``one``."""
        whole, each = one * self.models, "" if one == 1 else f"{one} x "
        terms = [f"{whole}d" if whole > 1 else "d"] if whole else []
        terms += [f"{each}last {n} layer{'s' * (n > 1)}" for n in self.layers]
        terms += [str(one * self.scalars)] if self.scalars else []
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class Traffic:
    """What one client receives and sends in a round.

    Attributes
    ----------
    exchanges
        The phases of a round, in order: ``train``, with ``probe`` before it where a part asks,
        and ``losses`` after it for a line search.
    down, up
        What each part adds to FedAvg's one model each way. Parameters that a client has already
        received in this round are not counted again.
    shares_model
        Whether parameters and updates travel at all.
    """

    exchanges: tuple[str, ...]
    down: dict[str, Amount] = field(default_factory=dict)
    up: dict[str, Amount] = field(default_factory=dict)
    shares_model: bool = True

    @property
    def federated(self) -> bool:
        """Whether anything of a client's own travels at all."""
        return self.shares_model or bool(self.up)

    @property
    def extra_down(self) -> Amount:
        """What all parts add to what FedAvg sends to a client."""
        return sum(self.down.values(), Amount())

    @property
    def extra_up(self) -> Amount:
        """What all parts add to what a client sends in FedAvg."""
        return sum(self.up.values(), Amount())


def traffic(algorithm: Algorithm) -> Traffic:
    """Run the algorithm on a tiny federation and return what it sends in a round.

    Examples
    --------
    >>> from fedparity.recipes import algorithm
    >>> found = traffic(algorithm("scaffold+prox"))
    >>> len(found.exchanges), str(found.extra_down), str(found.extra_up)
    (1, 'd', 'd')
    """
    with intraop(1):
        small, large = (_Counted(algorithm, width) for width in WIDTHS)
    found = {
        key: _fitted(small.counts[key], large.counts[key], small.layout, large.layout)
        for key in small.counts
    }
    return Traffic(
        small.phases,
        {part: amount for (way, part), amount in found.items() if way == "down"},
        {part: amount for (way, part), amount in found.items() if way == "up"},
        small.moves,
    )


class _Counted(Rounds):
    """Two rounds in memory, the second of which is counted."""

    def __init__(self, algorithm: Algorithm, width: int) -> None:
        task = Classification(f"mlp(hidden={width})")
        solver = Solver(lr=0.1, steps=2)
        count = max([CLIENTS, *(part.fewest for part in algorithm.parts)])
        clients = _clients(count, algorithm.group_kinds)
        experiment = Experiment(clients, task, algorithm, 2, solver, engine="loop")
        super().__init__(experiment, watch=Silent())
        self.layout: Layout = experiment.setup.layout
        self.counts: Counts = {}
        self.phases: tuple[str, ...] = ()
        self.moves = False
        state = self.open()
        try:
            self.round(state)
            answer = self.door.ask

            def ask(down: Down, cohort: Tensor) -> Replies:
                replies = answer(down, cohort)
                self._count(down, replies)
                return replies

            self.door.ask = ask  # type: ignore[method-assign]
            self.round(state)
        finally:
            self.close()

    def _lstar(self) -> pd.DataFrame:
        count = len(self.experiment.federation)
        return pd.DataFrame({split: np.zeros(count) for split in SPLITS})

    def _count(self, down: Down, replies: Replies) -> None:
        self.phases += (down.phase,)
        self.moves = self.moves or bool(replies.deltas.any())
        for part, tensors in down.shared.items():
            self._add("down", part, _numbers(tensors))
        for part, tensors in down.each.items():
            self._add("down", part, _numbers(tensors) // len(replies.clients))
        for part, tensors in replies.reports.items():
            self._add("up", part, _numbers(tensors) // len(replies.clients))

    def _add(self, way: str, part: str, numbers: int) -> None:
        if numbers:
            self.counts[way, part] = self.counts.get((way, part), 0) + numbers


def _numbers(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def _clients(count: int, kinds: frozenset[str]) -> Federation:
    """Return clients of ten examples each, eight of them for training, in two groups a kind."""
    inputs = np.linspace(-1, 1, count * 10 * 4).reshape(-1, 4) ** 3
    rows = np.arange(count * 10)
    groups = dict.fromkeys(sorted(kinds), rows % 3 == 0)
    return Federation.from_arrays(inputs, rows % 2, rows // 10, groups=groups)


def _fitted(small: int, large: int, layout: Layout, wide: Layout) -> Amount:
    """Return the models, last layers and single numbers that make up both counts."""
    depth = len(layout.layers)
    choices: Iterable[tuple[int, int]] = product(range(MOST_MODELS + 1), range(depth))
    for whole, layers in choices:
        rest = [
            count - whole * each.size - (each.size - each.tail(layers))
            for count, each in ((small, layout), (large, wide))
        ]
        if rest[0] == rest[1] >= 0:
            return Amount(whole, (layers,) if layers else (), rest[0])
    raise FedparityError(
        f"{small} numbers for a model of {layout.size} and {large} for one of {wide.size}: "
        "neither whole models nor last layers"
    )
