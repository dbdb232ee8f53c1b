"""What the server knows of its sites instead of their data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.dataclasses import dataclass as checked

from fedparity.data import Federation, Split
from fedparity.data.build import MOST_GROUPS, WHOLE, Kind
from fedparity.data.prepare import Preparation
from fedparity.flower.codec import BadMessage, shown
from fedparity.learning.unpacking import fields_of

LONGEST = 1 << 20
"""Bytes of what a site tells of itself."""
Count = Annotated[int, Field(ge=0, lt=1 << 40)]
MOST_VALUES = 1 << 28
"""Values of one example; the server allocates as many."""


def _bounded(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) > 16 or math.prod(shape) > MOST_VALUES:
        raise ValueError(f"one example has more than {MOST_VALUES:,} values")
    return shape


Shape = Annotated[tuple[Count, ...], AfterValidator(_bounded)]
Short = Annotated[str, Field(max_length=1 << 12)]
Tensors = tuple[tuple[Short, Shape, bool], ...]
"""The tensors of an input that is several, as :class:`~fedparity.learning.unpacking.Field`."""


@checked(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Hello:
    """What a site tells of itself: sizes and shapes, versions and settings, no example.

    Attributes
    ----------
    client
        Which client it is.
    train, validation, test
        Its numbers of examples.
    shape, target
        The shapes of one input and of one target.
    fields
        Of inputs that are a dict of tensors, packed into one: the name and shape of each, and
        whether it holds whole numbers.
    columns
        Of a table the input columns, and what each holds.
    fingerprint
        Digest of its data: tells whether they changed.
    model
        Digest of how the model is built.
    settings
        What every site and the server must agree on.
    whole
        Whether the model reads integers.
    groups
        The names of its groups inside the client, by kind.
    counts
        Its numbers of training examples by group, of the kinds that parts go by.
    """

    client: Short
    train: Annotated[int, Field(ge=1, lt=1 << 40)]
    validation: Count
    test: Count
    shape: Shape
    target: Shape
    outputs: Annotated[int, Field(ge=1, lt=1 << 24)]
    kind: Kind
    classes: tuple[Short, ...]
    columns: tuple[tuple[Short, Short], ...]
    fingerprint: Short
    model: Short
    parameters: Count
    python: Short
    settings: dict[Short, Short]
    whole: bool = False
    groups: dict[Short, Annotated[tuple[Short, ...], Field(max_length=MOST_GROUPS)]] = Field(
        default_factory=dict
    )
    fields: Tensors = ()
    counts: dict[Short, dict[Short, Count]] = Field(default_factory=dict)

    @field_validator("fields")
    @classmethod
    def _fill_the_input(cls, fields: Tensors, info: ValidationInfo) -> Tensors:
        if fields and info.data.get("shape") != (sum(math.prod(shape) for _, shape, _ in fields),):
            raise ValueError("the tensors of one example do not fill its input")
        return fields

    def text(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: object) -> Hello:
        """Return what a text tells, or say what is wrong with it."""
        if not isinstance(text, str) or len(text) > LONGEST:
            raise BadMessage("it tells nothing of itself that can be read")
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            told = f"what it tells of its {shown(where)} is wrong: {first['msg'][:200]}"
            raise BadMessage(told) from error


@dataclass(frozen=True, eq=False, repr=False)
class StandIn(Federation):
    """Clients of whom only sizes and shapes are known.

    Every split is one example of zeros, repeated without taking memory, so that all that asks a
    federation for sizes, names and shapes works unchanged.
    """

    prints: tuple[str, ...] = ()
    """The fingerprints of the sites' own data."""
    told: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """The sites' numbers of training examples by group, of the kinds that parts go by."""

    def group_counts(self, kind: str) -> pd.DataFrame:
        return self.told[kind]

    def _check(self, part: str, split: Split) -> None:
        pass

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sites' names and own fingerprints."""
        told = json.dumps([self.names, self.prints])
        return hashlib.sha256(told.encode()).hexdigest()

    def to(self, dtype: torch.dtype, whole: bool = False) -> StandIn:
        """Return the same in another floating point type; integers stay what they are."""
        train, validation, test = (_cast(split, dtype) for split in self._splits().values())
        return dataclasses.replace(self, train=train, validation=validation, test=test)


def unlike(mine: Hello, theirs: Hello) -> str | None:
    """Return in what the columns of two sites differ, or None."""
    own, other = dict(mine.columns), dict(theirs.columns)
    who = f"those of {shown(theirs.client)}"
    for name in [*own, *other]:
        if name not in other:
            return f"it has a column {shown(name)}, which is not among {who}"
        if name not in own:
            return f"it has no column {shown(name)}, which is among {who}"
        if own[name] != other[name]:
            told = f"its column {shown(name)} holds {shown(own[name])} and not"
            return f"{told} {shown(other[name])} as {who}"
    if mine.columns != theirs.columns:
        return f"its columns are in another order than {who}: name them in one order by features"
    return None


def other_groups(mine: Hello, theirs: Hello) -> str | None:
    """Return in what the groups of two sites differ, or None."""
    for kind in sorted({*mine.counts, *theirs.counts}):
        own, other = (list(site.counts.get(kind, {})) for site in (mine, theirs))
        if own != other:
            told, there = (", ".join(map(shown, names[:10])) for names in (own, other))
            return (
                f"its groups of {shown(kind)} are {told or 'none'}, those of "
                f"{shown(theirs.client)} are {there or 'none'}: let every site name the same groups"
            )
    return None


def stand_in(
    sites: Sequence[Hello],
    recipe: Mapping[str, Any] | None = None,
    preparation: Preparation | None = None,
) -> StandIn:
    """Return the federation of these sites, in their order."""
    first = sites[0]
    values = torch.int64 if first.kind in WHOLE else torch.float32
    kind = torch.int64 if first.whole else torch.float32

    def split(part: str) -> Split:
        sizes = [getattr(site, part) for site in sites]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        x = torch.zeros(first.shape, dtype=kind).expand(int(offsets[-1]), *first.shape)
        y = torch.zeros(first.target, dtype=values).expand(int(offsets[-1]), *first.target)
        none = np.broadcast_to(np.int16(0), len(y))
        return Split(x, y, offsets, dict.fromkeys(first.counts, none))

    return StandIn(
        tuple(site.client for site in sites),
        split("train"),
        split("validation"),
        split("test"),
        outputs=first.outputs,
        kind=first.kind,
        classes=first.classes,
        columns=first.columns,
        fields=fields_of(first.fields),
        groups={kind: tuple(counts) for kind, counts in first.counts.items()},
        recipe=recipe,
        preparation=preparation,
        prints=tuple(site.fingerprint for site in sites),
        told={
            kind: pd.DataFrame([site.counts[kind] for site in sites], [s.client for s in sites])
            for kind in first.counts
        },
    )


def _cast(split: Split, dtype: torch.dtype) -> Split:
    def cast(values: torch.Tensor) -> torch.Tensor:
        if not values.is_floating_point():
            return values
        return torch.zeros(values.shape[1:], dtype=dtype).expand(values.shape)

    return dataclasses.replace(split, x=cast(split.x), y=cast(split.y))
