"""L* that the user gives in place of a rule: numbers, a column of the federation, or a file.

A number by itself stands for all splits of its client; numbers under ``train``, ``validation`` or
``test`` stand for the split they are named after. Whatever way they come, they end as the table
that a rule would make, and as plain values that an experiment file can hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedparity.data import Federation
from fedparity.errors import InputError, unknown
from fedparity.run.lstar import COLUMNS, SPLITS
from fedparity.run.lstar_rules import RULES

ALL = "lstar"
"""The column that stands for all splits."""
FILES = (".csv", ".parquet")
LARGEST_FILE = 1 << 26
MOST_CLIENTS = 1 << 20
Given = (
    str
    | Path
    | pd.DataFrame
    | pd.Series
    | Mapping[Any, Any]
    | Sequence[float]
    | npt.NDArray[np.floating[Any]]
)
"""A rule's text or ``none``, a column's or a file's name, or numbers."""
Told = str | dict[str, Any]
"""The same as an experiment file holds it."""


def given(value: Given, federation: Federation) -> pd.DataFrame | None:
    """Return the numbers given for these clients; None where a rule is to find them, or nobody.

    Examples
    --------
    >>> two = Federation.from_arrays([[0.0], [1.0]], [0, 1], client=["a", "b"])
    >>> given({"a": 0.5, "b": 0.25}, two)[["client", "train"]].to_dict("list")
    {'client': ['a', 'b'], 'train': [0.5, 0.25]}
    """
    rows = _rows(value, federation)
    return None if rows is None else _table(rows, federation)


def is_file(value: object) -> bool:
    """Tell whether a value names a file."""
    return isinstance(value, str | Path) and Path(value).suffix.lower() in FILES


def is_rule(value: object) -> bool:
    """Tell whether a setting is a rule, by which every client finds its own number."""
    return isinstance(value, str) and value != "none" and not is_file(value)


def plain(table: pd.DataFrame, federation: Federation) -> dict[str, Any]:
    """Return given numbers by client, as :func:`given` reads them: one, or one a split."""
    splits = np.sum([getattr(federation, split).sizes > 0 for split in SPLITS], axis=0)
    found: dict[str, Any] = {
        str(row["client"]): {s: float(row[s]) for s in SPLITS if not np.isnan(row[s])}
        for row in table.to_dict("records")
    }
    # One number for all splits is short for them all, but only where every client has just one.
    if all(
        len(numbers) == there and len(set(numbers.values())) == 1
        for numbers, there in zip(found.values(), splits.tolist(), strict=True)
    ):
        return {name: next(iter(numbers.values())) for name, numbers in found.items()}
    return found


def digest(told: Told) -> str:
    """Return a setting in a few characters: a rule as it is, numbers by their digest."""
    if isinstance(told, str):
        return told
    text = json.dumps({str(name): told[name] for name in told}, sort_keys=True)
    return f"numbers {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _rows(value: Given, federation: Federation) -> pd.DataFrame | None:
    """Return one row a client, indexed by name, with whichever columns there are."""
    names = federation.names
    if isinstance(value, str | Path):
        if is_file(value):
            return read(Path(value))
        column = None if value in RULES else federation.about.get(str(value))
        return None if column is None else pd.DataFrame({ALL: column}, index=list(names))
    if isinstance(value, pd.DataFrame):
        return value.set_index("client") if "client" in value else value
    if isinstance(value, pd.Series):
        by_place = isinstance(value.index, pd.RangeIndex) and not set(names) & {
            *map(str, value.index)
        }
        return _in_order(value.to_numpy(), names) if by_place else value.to_frame(ALL)
    if isinstance(value, Mapping):
        return _by_name(value)
    return _in_order(value, names)


def _by_name(value: Mapping[Any, Any]) -> pd.DataFrame:
    rows = {}
    for name, told in value.items():
        rows[str(name)] = dict(told) if isinstance(told, Mapping) else {ALL: told}
        for split in rows[str(name)]:
            if split not in (ALL, *SPLITS):
                raise unknown(f"split of lstar of client '{name}'", str(split), SPLITS)
    return pd.DataFrame(list(rows.values()), index=list(rows))


def _in_order(value: object, names: tuple[str, ...]) -> pd.DataFrame:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"lstar is a rule, a file, or numbers, got {str(value)[:80]!r}") from None
    if numbers.shape != (len(names),):
        raise InputError(
            f"lstar of shape {numbers.shape} for {len(names)} clients: one number a client is "
            "expected, in the order of federation.names, or give them by name"
        )
    return pd.DataFrame({ALL: numbers}, index=list(names))


def _table(rows: pd.DataFrame, federation: Federation) -> pd.DataFrame:
    """Return the table of L* for the clients in their order, or say what is wrong with it."""
    named = [column for column in (ALL, *SPLITS) if column in rows]
    if len(rows) and not named:
        raise InputError("lstar needs a column lstar, train, validation or test")
    rows = rows.set_axis([str(name) for name in rows.index], axis=0)
    if rows.index.has_duplicates:
        raise InputError(f"lstar names client '{rows.index[rows.index.duplicated()][0]}' twice")
    known = set(federation.names)
    for name in rows.index:
        if name not in known:
            raise unknown("client in lstar", name, federation.names)
    missing = [name for name in federation.names if name not in rows.index]
    if missing:
        more = f", nor for {len(missing) - 1} others" if missing[1:] else ""
        raise InputError(f"lstar has no number for client '{missing[0]}'{more}")
    ordered = rows.loc[list(federation.names)]
    numbers = {column: _numbers(ordered[column]) for column in named}
    for split in SPLITS:
        if split in numbers and np.isnan(numbers[split]).all():  # as good as not there
            del numbers[split]
    found: dict[str, Any] = {"client": np.asarray(federation.names, dtype=object)}
    for split in SPLITS:
        has = getattr(federation, split).sizes > 0
        value = np.full(len(federation), np.nan)
        for column in (ALL, split):
            if column in numbers:
                value = np.where(np.isnan(numbers[column]), value, numbers[column])
        if ALL in numbers or split in numbers:
            wrong = np.flatnonzero(has & ~np.isfinite(value))
            if len(wrong):
                raise InputError(
                    f"lstar of client '{federation.names[wrong[0]]}' on {split} is "
                    f"{value[wrong[0]]:g}: a finite number is needed"
                )
        found[split] = np.where(has, value, np.nan)
    found["rounds"] = np.zeros(len(federation), dtype=np.int64)
    found["capped"] = np.zeros(len(federation), dtype=np.bool_)
    return pd.DataFrame(found, columns=list(COLUMNS))


def _numbers(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    try:
        return pd.to_numeric(column, errors="raise").to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        for name, value in column.items():
            if not isinstance(value, int | float):
                raise InputError(
                    f"lstar of client '{name}' is {str(value)[:80]!r}: a number is expected"
                ) from None
        raise InputError(f"column '{column.name}' of lstar is not numeric") from None


def read(file: Path) -> pd.DataFrame:
    """Read a CSV or parquet file with a column ``client`` and columns of numbers."""
    wanted = ("client", ALL, *SPLITS)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InputError(f"{file} is too large for one number a client")
        if file.suffix.lower() == ".csv":
            rows = pd.read_csv(
                file,
                usecols=lambda name: name in wanted,
                converters={"client": str},  # a client may be called 007, or NA
                nrows=MOST_CLIENTS + 1,
            )
            count = len(rows)
        else:
            with pq.ParquetFile(file) as table:
                count = table.metadata.num_rows
                names = [name for name in table.schema_arrow.names if name in wanted]
                few = count <= MOST_CLIENTS
                rows = table.read(columns=names).to_pandas() if few else pd.DataFrame()
    except InputError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        problem = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"cannot read {file}: {problem}") from error
    if count > MOST_CLIENTS:
        raise InputError(f"{file} has more than {MOST_CLIENTS:,} rows: one a client is expected")
    if "client" not in rows:
        raise InputError(f"{file} has no column 'client'")
    return rows.set_index("client")
