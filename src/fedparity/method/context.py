"""The server's view of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.learning.seeds import generator
from fedparity.learning.solver import Solver

if TYPE_CHECKING:
    from fedparity.method.part import Part


Chance = Literal["uniform", "unequal", "replaced", "losses"]
"""By what a cohort is drawn: all clients with equal probability and without replacement, otherwise
but without a look at their data, the same with replacement, or by losses that they are asked
for."""


class Grouping(NamedTuple):
    """The groups of a kind, and where their training examples are."""

    names: tuple[str, ...]
    counts: Tensor
    """Training examples of each client of the population by group, ``[K, G]``."""


@dataclass(frozen=True)
class Context:
    """The server's view of a round.

    ``clients`` are the ids of those who answer, ascending; every other tensor has their order.
    """

    round: int
    """Counts from 1."""
    population: int
    sizes: Tensor
    """Training examples of the whole population, ``[K]``."""
    clients: Tensor
    prior: Tensor
    """Aggregation weights before any part speaks: by size or uniform, summing to 1."""
    steps: Tensor
    """Local steps of each client."""
    lr: float
    x: Tensor
    layout: Layout
    by_size: bool = True
    """Whether the experiment weighs clients by their examples, or all alike."""
    cohort: int = 0
    """Clients asked a round."""
    solver: Solver = field(default_factory=Solver)
    parts: tuple[Part, ...] = ()
    """All parts of the algorithm."""
    seed: int = 0
    validation: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Validation examples of the whole population, ``[K]``; empty where they are not known."""

    server_lr: float = 1.0
    """Factor on the direction, once updates have arrived."""
    answered: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Rounds in which each client of the population has taken part, ``[K]``; empty before any."""

    chance: Chance = "uniform"
    """By what the clients that are asked are drawn."""
    local_buffers: bool = False
    """Whether buffers stay on the clients."""
    times: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """How often each client of the population was drawn, ``[K]``; empty where at most once."""
    asked: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Ids of all who were asked anything in this round, whether they answer or not."""
    groups: Mapping[str, Grouping] = field(default_factory=dict)
    """The groups of the kinds that parts go by."""
    classes: int = 0
    """The classes of which each example is one; 0 where targets are none."""

    @property
    def n(self) -> Tensor:
        """Training examples of those who answer."""
        return self.sizes[self.clients]

    @property
    def shares(self) -> Tensor:
        """The prior weights of the whole population, ``[K]``, summing to 1."""
        each = (
            self.sizes.to(self.x.dtype) if self.by_size else torch.ones_like(self.sizes).to(self.x)
        )
        return each / each.sum()

    @property
    def uniform(self) -> Tensor:
        """The uniform weights over those who answer; who was drawn twice counts twice."""
        if len(self.times):
            return self.drawn.to(self.prior.dtype) / self.drawn.sum()
        return self.prior.new_full(self.clients.shape, 1 / len(self.clients))

    @property
    def drawn(self) -> Tensor:
        """How often each of those who answer was drawn, ``[m]``: 1 but with replacement."""
        return self.times[self.clients] if len(self.times) else torch.ones_like(self.clients)

    @property
    def listed(self) -> Tensor:
        """The places of those who answer, each as often as it was drawn."""
        return torch.arange(len(self.clients)).repeat_interleave(self.drawn)

    def noise(self, purpose: str, size: int, secret: bool = False) -> Tensor:
        """Return standard normal numbers that depend on run, round and purpose alone, float64.

        ``secret`` takes them from the operating system's chance: nobody can make them again.
        """
        rng = np.random.default_rng() if secret else generator(self.seed, purpose, self.round)
        drawn = rng.standard_normal(size)
        return torch.from_numpy(drawn)
