"""How groups fare at sites: each tells numbers of its groups, and no example.

A number of very few patients is nearly one of each. So of groups that are too small a site tells
the size alone, and of one more where theirs could else be told from the whole client's.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from fedparity.data.build import natural
from fedparity.flower.census import Hello
from fedparity.flower.checking import check_values
from fedparity.flower.codec import BadMessage, shown
from fedparity.learning.task import Task
from fedparity.metrics import Metric

FEWEST = 5
"""Examples below which a group's numbers stay at the site."""
LONGEST = 1 << 22
"""Bytes of what a site tells of its groups."""
LOW, HIGH = "_low", "_high"
ENDS = ("", LOW, HIGH)
STRICT = ConfigDict(extra="forbid", strict=True)
Short = Annotated[str, Field(max_length=1 << 12)]
Number = float | None
"""None where it is undefined, or stays at the site."""
Three = tuple[Number, Number, Number]
"""A value and the ends of its interval."""


@checked(frozen=True, config=STRICT)
class Cell:
    """One group of a client in a split.

    Parameters
    ----------
    split, kind, group
        Which it is: the group ``f`` of the kind ``sex``, among the test examples.
    n
        Its examples.
    numbers
        Loss, accuracy and metrics, each with the ends of its interval.
    """

    split: Literal["validation", "test"]
    kind: Short
    group: Short
    n: Annotated[int, Field(ge=0, lt=1 << 40)]
    numbers: dict[Short, Three]


def cells(table: pd.DataFrame, split: Literal["validation", "test"], kind: str) -> Iterator[Cell]:
    """Yield what a site tells of its table of one kind of group."""
    names = [str(column)[:-4] for column in table if str(column).endswith("_low")]
    few = withheld(table["n"].tolist())
    for row, hidden in zip(table.to_dict("records"), few, strict=True):
        told: dict[str, Three] = dict.fromkeys(names, (None, None, None))
        if not hidden:
            told = {n: (_known(row[n]), _known(row[n + LOW]), _known(row[n + HIGH])) for n in names}
        yield Cell(split, kind, str(row[kind]), int(row["n"]), told)


def withheld(sizes: Sequence[int]) -> list[bool]:
    """Tell of which groups of a client the numbers stay at the site.

    >>> withheld([30, 3, 9, 0]), withheld([30, 3, 4]), withheld([30, 0])
    ([False, True, True, False], [False, True, True], [False, False])
    """
    found = [0 < n < FEWEST for n in sizes]
    while any(found) and sum(n for n, hidden in zip(sizes, found, strict=True) if hidden) < FEWEST:
        left = [k for k, n in enumerate(sizes) if n and not found[k]]
        if not left:
            break
        found[min(left, key=lambda k: sizes[k])] = True
    return found


def text(told: Iterable[Cell]) -> str:
    """Return what a site tells, as text."""
    return json.dumps([dataclasses.asdict(cell) for cell in told], ensure_ascii=False)


def read(told: object, hello: Hello, task: Task, metrics: Sequence[Metric]) -> list[Cell]:
    """Return what a site tells of its groups, or say why it cannot be."""
    if not isinstance(told, str) or len(told) > LONGEST:
        raise BadMessage("what it tells of its groups cannot be read")
    try:
        found = TypeAdapter(list[Cell]).validate_json(told)
    except ValidationError as error:
        first = error.errors()[0]
        where = shown(".".join(str(part) for part in first["loc"]))
        raise BadMessage(
            f"what it tells of its groups is wrong at {where}: {first['msg'][:200]}"
        ) from error
    wanted = [
        (split, kind, group)
        for split in ("validation", "test")
        if getattr(hello, split)
        for kind, groups in hello.groups.items()
        for group in groups
    ]
    if [(cell.split, cell.kind, cell.group) for cell in found] != wanted:
        raise BadMessage("it tells of other groups than it has")
    for split, kind in dict.fromkeys((cell.split, cell.kind) for cell in found):
        some = [cell for cell in found if (cell.split, cell.kind) == (split, kind)]
        n, whole = sum(cell.n for cell in some), getattr(hello, split)
        if n != whole:
            raise BadMessage(f"its groups by {shown(kind)} have {n} of {whole} {split} examples")
        for cell in some:
            _check(cell, task, metrics)
    return found


def _check(cell: Cell, task: Task, metrics: Sequence[Metric]) -> None:
    names = ["loss", *["accuracy"] * (task.predicts == "classes"), *(m.name for m in metrics)]
    told = {name: three[0] for name, three in cell.numbers.items() if three[0] is not None}
    check_values(told, [name for name in names if name in told], task, metrics)
    ends = [end for three in cell.numbers.values() for end in three if end is not None]
    if set(cell.numbers) != set(names) or not all(map(math.isfinite, ends)):
        raise BadMessage(f"its numbers of the group {shown(cell.group)} are not those asked for")


def table(told: Mapping[str, Sequence[Cell]], clients: Sequence[str]) -> pd.DataFrame:
    """Return what all sites tell as one table: a row a split, kind, client and group.

    Who has no example of a group that others have, or did not answer, has a row without numbers.
    """
    everyone = [cell for cells in told.values() for cell in cells]
    names = list(dict.fromkeys(name for cell in everyone for name in cell.numbers))
    levels: dict[str, set[str]] = {}
    for cell in everyone:
        levels.setdefault(cell.kind, set()).add(cell.group)
    known = {(c, x.split, x.kind, x.group): x for c, cells in told.items() for x in cells}
    rows: list[list[str | int | float]] = []
    for split, kind in dict.fromkeys((cell.split, cell.kind) for cell in everyone):
        groups = sorted(levels[kind], key=lambda group: (group == "missing", natural(group)))
        for client in clients:
            for group in groups:
                found = known.get((client, split, kind, group))
                known_numbers = [found.numbers[n] if found else (None,) * 3 for n in names]
                numbers = [math.nan if x is None else x for three in known_numbers for x in three]
                rows.append([split, kind, client, group, found.n if found else 0, *numbers])
    columns = [name + end for name in names for end in ENDS]
    return pd.DataFrame(rows, columns=["split", "kind", "client", "group", "n", *columns])


def _known(value: float) -> Number:
    return float(value) if math.isfinite(value) else None
