"""From the columns of a table to a federation: who is who, what is prepared, what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from torch import Tensor

from fedparity.data import build, doctor, own
from fedparity.data.build import Kind, Parts
from fedparity.data.doctor import Finding
from fedparity.data.fitting import fit
from fedparity.data.prepare import Number, Preparation
from fedparity.data.split import Groups, Ints, Split, room_for
from fedparity.errors import InputError, unknown

WAYS = ("federated", "client", "none")
Prepare = Any
"""A way, a fitted :class:`Preparation` or its file, or a transformer or its import path."""


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for.

    Parameters
    ----------
    client, target
        The columns that name the client, and what is predicted.
    part
        The column that says train, validation or test.
    features
        The input columns; None: all that are nothing else.
    without
        Columns that are left out.
    categories
        Columns of numbers that are codes, and are encoded as words.
    groups
        Columns of groups inside clients; no inputs unless ``features`` names them.
    about
        Columns of one number a client.
    """

    client: str
    target: str
    part: str | None = None
    features: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    about: tuple[str, ...] = ()

    def inputs(self, df: pd.DataFrame) -> list[str]:
        """Return the input columns; a name that is no column is refused."""
        if df.columns.has_duplicates:
            twice = df.columns[df.columns.duplicated()][0]
            raise InputError(f"two columns are called '{twice}': rename one")
        beside = [self.client, self.target, *self.groups, *self.about, *self.without]
        beside += [self.part] if self.part is not None else []
        for name in [*beside, *self.categories, *(self.features or ())]:
            if name not in df.columns:
                raise unknown("column", str(name), [str(column) for column in df.columns])
        if self.features is not None:
            chosen = [name for name in self.features if name not in self.without]
        else:
            chosen = [name for name in df.columns if name not in beside]
        if not chosen:
            raise InputError(f"no input column is left beside {', '.join(map(repr, beside))}")
        leak = {self.target, self.client} & set(chosen)
        if leak:
            raise InputError(f"'{leak.pop()}' is the client or the target: it cannot be an input")
        return chosen


@dataclass(frozen=True)
class Made:
    """What a federation is made of."""

    names: tuple[str, ...]
    splits: tuple[Split, Split, Split]
    outputs: int
    kind: Kind
    classes: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    about: dict[str, tuple[float, ...]]
    columns: tuple[tuple[str, str], ...]
    preparation: Preparation
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Study:
    """What is known of a table before anything is made of it.

    Parameters
    ----------
    df, roles
        The table, and what its columns are for.
    kinds
        What each input column holds.
    findings
        All that is wrong or odd.
    """

    df: pd.DataFrame
    roles: Roles
    kinds: Mapping[str, str]
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls, df: pd.DataFrame, roles: Roles, way: str, odd: Sequence[tuple[str, str]] = ()
    ) -> Study:
        """Look at a table; ``odd`` is what is unlike between its files."""
        chosen = roles.inputs(df)
        coded = set(roles.categories)
        kinds = {
            str(name): "category" if name in coded else doctor.kind_of(df[name]) for name in chosen
        }
        needed = [roles.client, roles.target, *roles.about]
        needed += [roles.part] if roles.part is not None else []
        files = [_of_file(file, what) for file, what in odd]
        called = [roles.client, roles.target, *roles.groups]
        return cls(df, roles, kinds, (*files, *doctor.table(df, kinds, needed, way, called)))

    def require(self) -> None:
        """Refuse the table with all problems at once."""
        problems = [str(finding) for finding in self.findings if finding.problem]
        if problems:
            raise InputError("; ".join(problems))

    def federation(
        self,
        prepare: Prepare,
        fractions: Sequence[float],
        seed: int,
        outputs: int | None,
        kind: Kind | None,
    ) -> Made:
        """Return what a federation of the table is made of."""
        self.require()
        df, roles = self.df, self.roles
        y, kind, outputs, classes = build.targets(target_of(df[roles.target]), kind, outputs)
        owner, names = build.owners(df[roles.client].to_numpy())
        if roles.part is None:
            part = build.drawn(owner, names, fractions, seed)
        else:
            part = build.marked(df[roles.part].to_numpy())
        codes, groups = build.groups({name: df[name] for name in roles.groups}, len(df))
        told = {"client": roles.client, "target": roles.target, "classes": classes}
        preparation = prepared(df, self.kinds, owner, names, part, prepare, told)
        three = dealt(df, preparation, y, owner, names, part, codes)
        return Made(
            names,
            three,
            outputs,
            kind,
            classes,
            groups,
            of_clients(df, roles.client, roles.about),
            tuple(self.kinds.items()),
            preparation,
            tuple(finding for finding in self.findings if not finding.problem),
        )


def way_of(prepare: Prepare) -> str:
    """Return which way of preparing is meant: its name, ``given`` or ``own``.

    >>> way_of("client")
    'client'
    """
    if isinstance(prepare, Preparation):
        return "given"
    if isinstance(prepare, str):
        if own.is_code(prepare):
            return "own"
        if prepare not in WAYS and not prepare.lower().endswith(".json"):
            raise unknown("way to prepare", prepare, WAYS)
        return prepare if prepare in WAYS else "given"
    if not isinstance(prepare, own.Coded | own.Transformer) or isinstance(prepare, type):
        raise InputError(
            f"prepare is {type(prepare).__name__}: give {', '.join(WAYS)}, a fitted Preparation, "
            "its file, or a transformer of scikit-learn"
        )
    return "own"


def prepared(
    df: pd.DataFrame,
    kinds: Mapping[str, str],
    owner: Ints,
    names: Sequence[str],
    part: Parts,
    prepare: Prepare,
    told: Mapping[str, Any],
) -> Preparation:
    """Return the preparation, fitted on training examples alone where it is not given."""
    way = way_of(prepare)
    if way == "given":
        return prepare if isinstance(prepare, Preparation) else Preparation.load(prepare)
    if way == "none":
        return Preparation("none", tuple(Number(name) for name in kinds), **told)
    train = np.flatnonzero((part == 0) & (owner >= 0))
    rows = df[list(kinds)].iloc[train]
    if way == "own":
        return Preparation("own", (), own=own.Own.fit(prepare, rows), **told)
    plain = {name: "category" if kind == "category" else "number" for name, kind in kinds.items()}
    return fit(rows, plain, owner[train], names, way, **told)


def dealt(
    df: pd.DataFrame,
    preparation: Preparation,
    y: npt.NDArray[Any],
    owner: Ints,
    names: Sequence[str],
    part: Parts,
    codes: Groups,
) -> tuple[Split, Split, Split]:
    """Return the three splits of a table; its inputs are made straight where they stay."""
    preparation.require(df)
    called = np.asarray(names, dtype=object)
    dtype = torch.float64 if preparation.how == "none" else torch.float32

    def take(rows: Ints) -> Tensor:
        x = room_for((len(rows), len(preparation.outputs)), dtype)
        preparation.fill(x.numpy(), df, rows, called[owner[rows]] if preparation.clients else None)
        return x

    return build.splits(take, y, owner, part, len(names), codes)


def of_clients(df: pd.DataFrame, client: str, about: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return columns that hold one number a client, in the order of the federation's clients."""
    if not about:
        return {}
    owner, names = build.owners(df[client].to_numpy())
    found = {}
    for column in about:
        if not is_numeric_dtype(df[column]):
            raise InputError(f"column '{column}' of about is not numeric: one number a client")
        values = df[column].groupby(owner)
        differs = np.flatnonzero(values.nunique() > 1)
        if len(differs):
            raise InputError(
                f"column '{column}' is not the same in all rows of client '{names[differs[0]]}'"
            )
        found[column] = tuple(float(value) for value in values.first())
    return found


def target_of(y: pd.Series[Any]) -> npt.NDArray[Any]:
    """Return a column of targets as plain numbers, or as it is."""
    if is_numeric_dtype(y) and not is_bool_dtype(y):
        y = y.astype("float64" if y.dtype.kind == "f" else "int64")
    return y.to_numpy()


def _of_file(file: str, what: str) -> Finding:
    if "order" in what:
        return Finding(f"file {file}", what, "they are read by name, so nothing is lost")
    if "has text" in what:
        return Finding(f"file {file}", what, "leave such cells empty", True)
    return Finding(f"file {file}", what, "rename the columns, or leave them out (--without)", True)
