"""What a site tells of its table, so that all sites prepare theirs alike: sums, no row.

The text of it is bounded and checked when it is read; :func:`combine` adds up what all tell, by the
same functions that prepare a table which lies in one place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from fedparity.data.build import MOST_CLASSES, Kind
from fedparity.data.fitting import (
    MOST_LEVELS,
    Sums,
    category_of,
    levels_of,
    number_of,
    together,
    whose_of,
)
from fedparity.data.prepare import Category, Number, Preparation, numbers, words
from fedparity.errors import InputError

LONGEST = 1 << 24
"""Bytes of what a site tells of its table."""
STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=0, lt=1 << 40)]
Short = Annotated[str, Field(max_length=1 << 12)]
Mean = Annotated[float, Field(ge=-1e140, le=1e140)]
Squares = Annotated[float, Field(ge=0, le=1e290)]


@checked(frozen=True, config=STRICT)
class Numbers:
    """Of a column of numbers: how many there are, their mean and the squares about it."""

    name: Short
    n: Count
    missing: Count
    mean: Mean
    squares: Squares
    kind: Literal["number"] = "number"

    @property
    def rows(self) -> int:
        """How many training examples it counts."""
        return self.n + self.missing


@checked(frozen=True, config=STRICT)
class Words:
    """Of a column of words: how often each occurs."""

    name: Short
    missing: Count
    words: Annotated[dict[Short, Annotated[Count, Field(ge=1)]], Field(max_length=MOST_LEVELS)]
    kind: Literal["category"] = "category"

    @property
    def rows(self) -> int:
        """How many training examples it counts."""
        return self.missing + sum(self.words.values())


@checked(frozen=True, config=STRICT)
class Nothing:
    """Of a column that holds nothing at this site, whatever it holds at others."""

    name: Short
    missing: Count
    kind: Literal["empty"] = "empty"

    @property
    def rows(self) -> int:
        """How many training examples it counts."""
        return self.missing


Column = Annotated[Numbers | Words | Nothing, Field(discriminator="kind")]


@checked(frozen=True, config=STRICT)
class Told:
    """What a site tells of its table.

    Parameters
    ----------
    client
        The client.
    how
        Whose numbers fill gaps and scale: ``federated`` or ``client``.
    rows
        Training examples.
    columns
        What each input column holds of them.
    target, owner
        The columns of the target and of the client.
    kind, outputs, classes
        What the targets are.
    """

    client: Short
    how: Literal["federated", "client"]
    rows: Annotated[int, Field(ge=1, lt=1 << 40)]
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=100_000)]
    target: Short
    owner: Short
    kind: Kind
    outputs: Annotated[int, Field(ge=1, lt=1 << 24)]
    classes: Annotated[tuple[Short, ...], Field(max_length=MOST_CLASSES)]

    def text(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, text: object) -> Told:
        """Return what a text tells, or say in one line what is wrong with it."""
        if not isinstance(text, str) or len(text) > LONGEST:
            raise InputError("what it tells of its table cannot be read")
        try:
            told = TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = repr(".".join(str(part) for part in first["loc"]))[:80]
            raise InputError(
                f"what it tells of its table is wrong at {where}: {first['msg'][:200]}"
            ) from error
        if len({column.name for column in told.columns}) < len(told.columns):
            raise InputError("it tells of a column twice")
        if len(set(told.classes)) < len(told.classes):
            raise InputError("it tells of a class twice")
        for column in told.columns:
            if column.rows != told.rows:
                raise InputError(
                    f"its column {column.name[:80]!r} counts {column.rows:,} of its "
                    f"{told.rows:,} training examples"
                )
        return told


def tell(df: pd.DataFrame, kinds: Mapping[str, str]) -> tuple[Numbers | Words | Nothing, ...]:
    """Return what the columns of these training examples hold."""
    alone = np.zeros(len(df), dtype=np.int64)

    def one(name: str, kind: str) -> Numbers | Words | Nothing:
        missing = int(df[name].isna().sum())
        if kind == "empty":
            return Nothing(name, missing)
        if kind == "category":
            counts = words(df[name]).value_counts()
            found = {str(word): int(n) for word, n in counts.items() if n}
            levels_of(name, found)
            return Words(name, missing, found)
        sums = Sums.of(numbers(df[name]), alone, 1)
        return Numbers(name, int(sums.n[0]), missing, float(sums.mean[0]), float(sums.squares[0]))

    return tuple(one(name, kind) for name, kind in kinds.items())


@checked(frozen=True, config=ConfigDict(extra="forbid"))
class Common:
    """What the server answers to what all told: how every site makes its examples.

    Parameters
    ----------
    preparation
        The preparation, as text; it names the classes.
    kind, outputs
        What the targets of all are.
    """

    preparation: str
    kind: Kind
    outputs: Annotated[int, Field(ge=1, lt=1 << 24)]

    def text(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, text: str) -> Common:
        """Return what a text says, or say in one line what is wrong with it."""
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise InputError(
                f"the common preparation is wrong: {error.errors()[0]['msg'][:200]}"
            ) from error

    @property
    def prepared(self) -> Preparation:
        """The preparation."""
        return Preparation.read(self.preparation.encode(), "the common preparation")


def combine(told: Sequence[Told]) -> Common:
    """Return the common preparation of what the sites told, in the order of the clients.

    It is that of :func:`~fedparity.data.fitting.fit` over all training examples, to the bit.
    """
    first = told[0]
    for other in told[1:]:
        _require_alike(first, other)
    whose = whose_of(first.how)
    by_name = [{column.name: column for column in each.columns} for each in told]

    def rule(name: str) -> tuple[Number | Category, list[Number | Category]]:
        columns = [each[name] for each in by_name]
        if any(isinstance(column, Words) for column in columns):
            known, counts = _counted(name, columns)
            return category_of(name, known, counts, whose)
        return number_of(name, _sums(columns), whose, whose)

    rules = [rule(column.name) for column in first.columns]
    kind, outputs, classes = _targets(told)
    names = [each.client for each in told]
    made = together(
        rules, names, first.how, client=first.owner, target=first.target, classes=classes
    )
    return Common(made.text(), kind, outputs)


def _require_alike(first: Told, other: Told) -> None:
    """Refuse a site whose table has other columns than the first one's."""
    who, theirs = f"client '{other.client}'", f"those of '{first.client}'"
    for what in ("how", "target", "owner"):
        mine, wanted = getattr(other, what), getattr(first, what)
        if mine != wanted:
            raise InputError(
                f"{who}: its {what} is {mine[:80]!r}, that of '{first.client}' is {wanted[:80]!r}"
            )
    own = {column.name: column.kind for column in other.columns}
    wanted = {column.name: column.kind for column in first.columns}
    for name in [*own, *wanted]:
        if name not in wanted:
            raise InputError(f"{who}: it has a column {name[:80]!r}, which is not among {theirs}")
        if name not in own:
            raise InputError(f"{who}: it has no column {name[:80]!r}, which is among {theirs}")
        if "empty" not in (own[name], wanted[name]) and own[name] != wanted[name]:
            raise InputError(
                f"{who}: its column {name[:80]!r} holds {own[name]} and not {wanted[name]} as "
                f"{theirs}"
            )


def _counted(name: str, columns: Iterable[Numbers | Words | Nothing]) -> tuple[list[str], Any]:
    each = [column.words if isinstance(column, Words) else {} for column in columns]
    known = levels_of(name, {word for found in each for word in found})
    counts = [[found.get(level, 0) for level in known] for found in each]
    return known, np.asarray(counts, dtype=np.int64)


def _sums(columns: Sequence[Numbers | Words | Nothing]) -> Sums:
    def row(what: str) -> Any:
        return np.asarray([getattr(column, what, 0) for column in columns], dtype=np.float64)

    return Sums(row("n"), row("missing"), row("mean"), row("squares"))


def _targets(told: Sequence[Told]) -> tuple[Kind, int, tuple[str, ...]]:
    """Return what the targets of all are: whole numbers of a site may be values beside others."""
    named = [each for each in told if each.classes]
    kinds = {each.kind for each in told}
    if kinds == {"classes", "values"} and not named:
        return "values", 1, ()
    odd = next(_odd(told, len(named)), None)
    if odd is not None:
        raise InputError(
            f"client '{odd.client}': its target is {odd.kind}{' in words' if odd.classes else ''}, "
            f"that of '{told[0].client}' is {told[0].kind}{' in words' if told[0].classes else ''}"
        )
    classes = tuple(sorted({name for each in told for name in each.classes}))
    return told[0].kind, max([len(classes), *(each.outputs for each in told)]), classes


def _odd(told: Sequence[Told], named: int) -> Iterator[Told]:
    for each in told[1:]:
        if each.kind != told[0].kind or (named and bool(each.classes) != bool(told[0].classes)):
            yield each
