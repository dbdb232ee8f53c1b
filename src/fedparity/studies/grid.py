"""The grid of a study: every combination of algorithms, settings and seeds, as settings of runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedparity.data.table import is_table
from fedparity.errors import InputError, unknown
from fedparity.run.file import KEYS, TABLES

MOST_RUNS = 100_000
MOST_SEEDS = 10_000
OWN = ("algorithm", "seed")
"""Settings that a study varies by itself."""
Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A place of the grid: what was chosen there, and the settings of its run."""

    label: str
    chosen: Mapping[str, Any]
    """The value of each key of the grid."""
    seed: int
    settings: Settings


def labelled(algorithms: Mapping[str, str] | Sequence[str] | str) -> dict[str, str]:
    """Return the algorithms by the labels that tables show them under.

    >>> labelled(["fedavg", "eagle(lam=2)"])
    {'fedavg': 'fedavg', 'eagle(lam=2)': 'eagle(lam=2)'}
    """
    if isinstance(algorithms, str):
        algorithms = [algorithms]
    if isinstance(algorithms, Mapping):
        found = {str(label): str(text) for label, text in algorithms.items()}
    else:
        found = {str(text): str(text) for text in algorithms}
        if len(found) < len(algorithms):
            twice = next(text for text in found if list(algorithms).count(text) > 1)
            raise InputError(f"'{twice}' stands twice among the algorithms")
    if not found:
        raise InputError("a study needs at least one algorithm: algorithms: [fedavg, eagle(lam=1)]")
    return found


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds that a number of them, or a list, stands for.

    >>> seeds_of(3), seeds_of([42])
    ((0, 1, 2), (42,))
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int | list | tuple | range):
        raise InputError(f"seeds is how many, or a list of whole numbers, got {seeds!r}")
    if isinstance(seeds, int) and not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"seeds is {seeds}: from 1 to {MOST_SEEDS}, or a list of them")
    found = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if any(isinstance(seed, bool) or not isinstance(seed, int) or seed < 0 for seed in found):
        raise InputError(f"seeds are whole numbers from 0, got {list(found)!r}")
    if not found or len(set(found)) < len(found):
        raise InputError("seeds are different whole numbers, and at least one")
    return found


def checked(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the grid with a list of values for each key; an unknown key is refused."""
    found = {}
    for key, values in grid.items():
        check_key(str(key))
        listed = list(values) if isinstance(values, list | tuple | range) else [values]
        if not listed:
            raise InputError(f"the grid has no value for '{key}'")
        found[str(key)] = listed
    return found


def check_key(key: str) -> None:
    """Refuse a key of the grid that is no setting of an experiment."""
    first, dot, rest = key.partition(".")
    if first in OWN:
        raise InputError(f"'{key}' has a place of its own in a study: write '{first}s'")
    if first not in KEYS:
        every = [f"{table}.{name}" for table in TABLES for name in _inside(table)]
        raise unknown("setting of the grid", key, [*KEYS, *every])
    if dot and first not in TABLES:
        raise InputError(f"'{first}' has no settings inside: write '{first}', not '{key}'")
    if dot and rest not in _inside(first):
        raise unknown("setting of the grid", key, [f"{first}.{name}" for name in _inside(first)])


def cells(
    settings: Mapping[str, Any],
    algorithms: Mapping[str, str],
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
) -> Iterator[Cell]:
    """Yield the places of the grid, seed by seed: what is done first can be compared."""
    runs = len(seeds) * len(algorithms)
    for values in grid.values():
        runs *= len(values)
    if runs > MOST_RUNS:
        raise InputError(f"the grid has {runs:,} runs: at most {MOST_RUNS:,}")
    for seed in seeds:
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            for label, text in algorithms.items():
                made = {k: v for k, v in settings.items() if k != "record"}
                for key, value in chosen.items():
                    made = put(made, key, value)
                yield Cell(label, chosen, seed, {**made, "algorithm": text, "seed": seed})


def put(settings: Mapping[str, Any], key: str, value: Any) -> Settings:
    """Return settings in which a dotted key has a value.

    >>> put({"data": "digits", "rounds": 3}, "data.partition", "iid")
    {'data': {'dataset': 'digits', 'partition': 'iid'}, 'rounds': 3}
    """
    first, dot, rest = key.partition(".")
    if not dot:
        return {**settings, first: value}
    inner = settings.get(first) or {}
    if first == "data" and isinstance(inner, str):
        inner = {"table" if is_table(inner) else "dataset": inner}
    if not isinstance(inner, Mapping):
        raise InputError(f"'{first}' must be a table of settings, got {inner!r}")
    if key in ("solver.steps", "solver.epochs"):  # one takes the place of the other
        inner = {k: v for k, v in inner.items() if k not in ("steps", "epochs")}
    return {**settings, first: {**inner, rest: value}}


def _inside(table: str) -> list[str]:
    """Return the settings inside one."""
    return sorted({name for kind in TABLES[table] for name in kind.__dataclass_fields__})
