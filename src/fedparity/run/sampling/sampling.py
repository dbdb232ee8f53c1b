"""What a sampling is: it says which clients are asked in a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedparity.arguments import Settings
from fedparity.engines.engine import Ids
from fedparity.imports import is_own, text_of
from fedparity.learning.seeds import generator
from fedparity.method.context import Chance
from fedparity.spec import written

State = dict[str, Tensor]
"""What a sampling remembers from round to round, by name."""
Losses = Callable[[Ids], tuple[Ids, Tensor]]
"""Asks clients for their training loss at the current model; returns those who answer, ascending,
and their losses. One exchange, in which a client sends one number."""


@dataclass(frozen=True)
class Population:
    """What a sampling sees of the clients.

    Parameters
    ----------
    names
        The clients, by id.
    sizes
        Their training examples, ``[K]``.
    cohort
        How many clients are asked in a round.
    seed
        The seed of the run.
    """

    names: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    cohort: int
    seed: int

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each name."""
        return {name: client for client, name in enumerate(self.names)}

    def generator(self, round: int) -> np.random.Generator:
        """Return the generator of a round's draws."""
        return generator(self.seed, "cohort", round)


class Sampling(metaclass=Settings):
    """Draws the cohort of each round; a frozen dataclass whose fields are the settings.

    What it remembers is handed in and returned, so that a run that is resumed draws the same.
    """

    name: ClassVar[str]
    weighting: ClassVar[Literal["size", "uniform"]] = "size"
    """The weights that go with it, where the experiment does not name others."""
    ahead: ClassVar[bool] = True
    """Whether a cohort follows from round and seed alone, so that it can be drawn at any time."""
    chance: ClassVar[Chance] = "unequal"
    """By what clients are drawn; one that is not ``ahead`` is taken to ask for losses."""
    absence: ClassVar[bool] = False
    """Whether a client may be out of reach in a round."""

    def check(self, who: Population) -> None:
        """Refuse clients or a cohort that the settings do not fit."""

    def init(self, who: Population) -> State:
        """Return what is remembered before the first round."""
        return {}

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        """Return the cohort of a round, ascending, and what is remembered after it.

        A client that stands in it twice is asked once, and its prior weight counts twice.
        """
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The sampling as an experiment file has it, with all settings."""
        return str(written(self.name, self)) if is_own(type(self)) else text_of(self)

    @property
    def identity(self) -> str:
        """What a run that is resumed must agree with."""
        return self.text
