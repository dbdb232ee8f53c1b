"""Clients that are not always there: by a trace in a file, or by the hour of a day."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from fedparity.engines.engine import Ids
from fedparity.errors import InputError, unknown
from fedparity.learning.seeds import generator
from fedparity.method.part import STRICT
from fedparity.run.sampling.plain import places
from fedparity.run.sampling.sampling import Losses, Population, Sampling, State

LARGEST_FILE = 1 << 26
MOST_ROWS = 1 << 22
LAST_ROUND = 1 << 24
Trace = dict[int, tuple[str, ...]]
"""The clients that are there, by round."""


@dataclass(frozen=True, config=STRICT)
class Available(Sampling):
    """Draw uniformly among the clients that are there in a round.

    Where fewer are there than the cohort all of them are asked, and where nobody is the round is
    empty: it changes nothing.

    Parameters
    ----------
    file
        A CSV file with columns ``round`` (from 1) and ``client`` (names): a row for each round in
        which a client is there. After its last round the trace begins again.
    share
        Without a file: the share of each day that a client is there, from an hour of its own, drawn
        by the seed.
    period
        Without a file: the rounds of a day.

    Notes
    -----
    Sent: nothing more than FedAvg. The file is read when the experiment is made; a run is resumed
    only with the same trace.

    Examples
    --------
    >>> who = Population(("a", "b", "c", "d"), np.asarray([9, 4, 1, 6]), cohort=4, seed=0)
    >>> night = Available(share=0.5, period=4)
    >>> [night.draw(t, {}, who, None)[0].tolist() for t in (1, 2, 3, 4, 5)]
    [[2, 3], [1, 2, 3], [0, 1], [0], [2, 3]]
    """

    file: str | None = Field(default=None, description="CSV with columns round and client")
    share: float | None = Field(
        default=None, gt=0, le=1, description="of each day a client is there"
    )
    period: int = Field(default=24, ge=1, le=LAST_ROUND, description="rounds of a day")

    name = "available"
    absence = True

    @model_validator(mode="after")
    def _one_of_both(self) -> Available:
        if (self.file is None) == (self.share is None):
            raise ValueError("give either file or share")
        return self

    @cached_property
    def trace(self) -> Trace:
        """The clients that are there by the file, which is read once."""
        return {} if self.file is None else read(Path(self.file))

    def check(self, who: Population) -> None:
        for there in self.trace.values():
            for name in there:
                if name not in who.ids:
                    raise unknown(f"client in {self.file}", name, who.names)

    @property
    def identity(self) -> str:
        if self.file is None:
            return self.text
        told = repr(sorted(self.trace.items())).encode()
        return f"{self.name} {hashlib.sha256(told).hexdigest()[:16]}"

    def draw(self, round: int, state: State, who: Population, losses: Losses) -> tuple[Ids, State]:
        there = self.there(round, who)
        return there[places(len(there), round, who)], state

    def there(self, round: int, who: Population) -> Ids:
        """Return the clients that are there in a round, ascending."""
        if self.share is not None:
            hours = generator(who.seed, "availability").integers(self.period, size=len(who))
            awake = max(1, np.rint(self.share * self.period))
            return np.flatnonzero((round - 1 + hours) % self.period < awake)
        names = self.trace.get((round - 1) % max(self.trace) + 1, ())
        return np.asarray(sorted(who.ids[name] for name in names), dtype=np.int64)


def read(file: Path) -> Trace:
    """Read a CSV file with columns ``round`` and ``client``."""
    wanted = ("round", "client")
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InputError(f"{file} is too large for a trace of availability")
        rows = pd.read_csv(
            file,
            usecols=lambda name: name in wanted,
            converters={"client": str},  # a client may be called 007, or NA
            nrows=MOST_ROWS + 1,
        )
    except InputError:
        raise
    except (OSError, ValueError) as error:
        problem = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"cannot read {file}: {problem}") from error
    for column in wanted:
        if column not in rows:
            raise InputError(f"{file} has no column '{column}'")
    if not 0 < len(rows) <= MOST_ROWS:
        raise InputError(f"{file} has {'no' if rows.empty else f'more than {MOST_ROWS:,}'} rows")
    rounds = pd.to_numeric(rows["round"], errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~((rounds >= 1) & (rounds <= LAST_ROUND) & (rounds % 1 == 0)))
    if len(wrong):
        told = str(rows["round"].iloc[wrong[0]])[:80]
        raise InputError(f"{file}: round {told!r} is not a whole number from 1 to {LAST_ROUND}")
    found: dict[int, dict[str, None]] = {}
    for round, client in zip(rounds.astype(np.int64).tolist(), rows["client"], strict=True):
        found.setdefault(round, {})[client] = None
    return {round: tuple(sorted(clients)) for round, clients in found.items()}
