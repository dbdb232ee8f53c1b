"""The UCI heart disease records of four hospitals.

Fourteen columns, comma separated, ``?`` where a value is missing; the last is the diagnosis,
0 (healthy) to 4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

Floats = npt.NDArray[np.float64]
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
LATER = ("slope", "ca", "thal")
NUMBERS = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
CATEGORIES: dict[str, tuple[int, ...]] = {
    "cp": (1, 2, 3, 4),
    "restecg": (0, 1, 2),
    "slope": (1, 2, 3),
    "thal": (3, 6, 7),
}
NEVER_ZERO = ("trestbps", "chol")
LARGEST = 10_000_000


def read_hospital(path: Path) -> Floats:
    """Return the records ``[N, 14]`` of one hospital, NaN where a value is missing.

    A blood pressure or cholesterol of 0, as in all Swiss records, is a missing value too.
    """
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} is larger than any of the four hospitals' files")
    rows = []
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = [np.nan if cell.strip() == "?" else float(cell) for cell in line.split(",")]
        except ValueError:
            raise InputError(f"{path}, line {number}: not numbers or '?'") from None
        if len(values) != len(COLUMNS) or not np.isfinite(values[-1]):
            raise InputError(f"{path}, line {number}: {len(COLUMNS)} columns are expected")
        rows.append(values)
    if not rows:
        raise InputError(f"{path} is empty")
    table = np.asarray(rows)
    for name in NEVER_ZERO:
        column = table[:, COLUMNS.index(name)]
        column[column == 0] = np.nan
    return table


def filled(table: Floats, client: npt.NDArray[np.int64], impute: str) -> Floats:
    """Fill in missing values: the median of a number, the most frequent of a category.

    ``impute="client"`` takes them from the same hospital, and from all where it has none.
    """
    table = table.copy()
    for place, name in enumerate(COLUMNS):
        column = table[:, place]
        missing = np.isnan(column)
        overall = _typical(column[~missing], name)
        for k in np.unique(client[missing]):
            own = column[~missing & (client == k)]
            use_own = impute == "client" and len(own) > 0
            column[missing & (client == k)] = _typical(own, name) if use_own else overall
    return table


def features(table: Floats, columns: str) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the inputs and which of them are numbers; a category of m values is m - 1 of 0 / 1."""
    inputs, number = [], []
    for place, name in enumerate(COLUMNS[:-1]):
        if columns == "common" and name in LATER:
            continue
        levels: tuple[int, ...] = CATEGORIES.get(name, ())
        strange = np.setdiff1d(table[:, place], levels)
        if levels and len(strange):
            raise InputError(f"heart_disease: '{name}' has the value {strange[0]:g}")
        inputs += [table[:, place] == level for level in levels[1:]] or [table[:, place]]
        number += [name in NUMBERS] * max(len(levels) - 1, 1)
    return np.stack(inputs, axis=1).astype(np.float64), np.asarray(number)


def scaled(
    x: Floats, number: npt.NDArray[np.bool_], client: npt.NDArray[np.int64], scale: str
) -> Floats:
    """Bring the columns of numbers to mean 0 and standard deviation 1, a hospital or overall."""
    x = x.copy()
    groups = client if scale == "client" else np.zeros_like(client)
    for k in np.unique(groups) if scale != "none" else ():
        rows = np.ix_(groups == k, number)
        spread = x[rows].std(axis=0)
        x[rows] = (x[rows] - x[rows].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return x


def _typical(values: Floats, name: str) -> float:
    if not len(values):  # recorded nowhere: a constant, which says nothing
        return float(CATEGORIES.get(name, (0,))[0])
    if name in NUMBERS:
        return float(np.median(values))
    found, counts = np.unique(values, return_counts=True)
    return float(found[np.argmax(counts)])
