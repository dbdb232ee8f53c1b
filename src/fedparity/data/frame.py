"""The columns of a table that make a federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from fedparity.data.build import owners
from fedparity.errors import InputError, unknown


def columns(
    df: pd.DataFrame,
    client: str,
    target: str,
    part: str | None,
    features: Sequence[str] | None,
    about: Sequence[str] = (),
) -> tuple[npt.NDArray[np.float64], Any, Any, Any]:
    """Return inputs, targets, clients and parts of a table, or name the column that is wrong."""
    if df.columns.has_duplicates:
        twice = df.columns[df.columns.duplicated()][0]
        raise InputError(f"two columns are called '{twice}': rename one")
    named = [client, target] + ([part] if part is not None else [])
    beside = [*named, *about]
    chosen = list(features) if features is not None else [c for c in df.columns if c not in beside]
    for name in [*beside, *chosen]:
        if name not in df.columns:
            raise unknown("column", str(name), [str(column) for column in df.columns])
        missing = int(df[name].isna().sum())
        if missing:
            raise InputError(
                f"column '{name}' misses {missing} of {len(df)} values: "
                "fill them in or drop the rows"
            )
    if not chosen:
        raise InputError(f"no input column is left beside {', '.join(map(repr, beside))}")
    for name in [*about, *chosen]:
        if not is_numeric_dtype(df[name]):
            raise InputError(
                f"column '{name}' is not numeric: encode it first, "
                f"as in pd.get_dummies(df, columns=['{name}']), or drop it"
            )
    y = df[target]
    if is_numeric_dtype(y) and not is_bool_dtype(y):
        y = y.astype("float64" if y.dtype.kind == "f" else "int64")
    x = df[chosen].to_numpy(dtype=np.float64)
    return x, y.to_numpy(), df[client].to_numpy(), None if part is None else df[part].to_numpy()


def of_clients(df: pd.DataFrame, client: str, about: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return columns that hold one number a client, in the order of the federation's clients."""
    owner, names = owners(df[client].to_numpy())
    found = {}
    for column in about:
        values = df[column].groupby(owner)
        differs = np.flatnonzero(values.nunique() > 1)
        if len(differs):
            raise InputError(
                f"column '{column}' is not the same in all rows of client '{names[differs[0]]}'"
            )
        found[column] = tuple(float(value) for value in values.first())
    return found
