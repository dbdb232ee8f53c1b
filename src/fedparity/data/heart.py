"""The UCI heart disease records of four hospitals.

Fourteen columns, comma separated, ``?`` where a value is missing; the last is the diagnosis,
0 (healthy) to 4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.data.fitting import Whose, category, number
from fedparity.data.prepare import Category, Number, Preparation, words
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
    for place, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = [np.nan if cell.strip() == "?" else float(cell) for cell in line.split(",")]
        except ValueError:
            raise InputError(f"{path}, line {place}: not numbers or '?'") from None
        if len(values) != len(COLUMNS) or not np.isfinite(values[-1]):
            raise InputError(f"{path}, line {place}: {len(COLUMNS)} columns are expected")
        rows.append(values)
    if not rows:
        raise InputError(f"{path} is empty")
    table = np.asarray(rows)
    for name in NEVER_ZERO:
        column = table[:, COLUMNS.index(name)]
        column[column == 0] = np.nan
    return table


def preparation(
    table: Floats, client: npt.NDArray[np.int64], impute: str, scale: str, columns: str
) -> Preparation:
    """Return how the records of hospitals become inputs.

    Parameters
    ----------
    table, client
        The records, and the hospital of each as a place in :data:`HOSPITALS`.
    impute
        Whose median, or most frequent value of a category, fills gaps: ``client`` (of all where the
        hospital has none) or ``global``.
    scale
        Whose mean and deviation scale numbers: ``client``, ``global`` or ``none``.
    columns
        ``all``, or ``common`` without those of :data:`LATER`. A category of m values is m - 1
        inputs of 0 and 1.
    """
    fill: Whose = "client" if impute == "client" else "common"
    by: Whose = "client" if scale == "client" else "none" if scale == "none" else "common"
    usual: list[Number | Category] = []
    each: list[list[Number | Category]] = []
    for place, name in enumerate(COLUMNS[:-1]):
        if columns == "common" and name in LATER:
            continue
        values = table[:, place]
        if name in NUMBERS:
            made, own = number(name, values, client, len(HOSPITALS), fill, by, median=True)
            usual, each = [*usual, made], [*each, own]
            continue
        levels = CATEGORIES.get(name, (0, 1))
        strange = np.setdiff1d(values[~np.isnan(values)], levels)
        if len(strange):
            raise InputError(f"heart_disease: '{name}' has the value {strange[0]:g}")
        texts, column = [str(level) for level in levels], words(pd.Series(values))
        coded, own = category(name, column, client, len(HOSPITALS), fill, texts, first=False)
        usual, each = [*usual, coded], [*each, own]
    clients = dict(zip(HOSPITALS, zip(*each, strict=True), strict=True))
    return Preparation(impute, tuple(usual), clients)


def inputs(
    table: Floats, client: npt.NDArray[np.int64], impute: str, scale: str, columns: str
) -> npt.NDArray[np.float32]:
    """Return the inputs of records, prepared by their own numbers; see :func:`preparation`."""
    made = preparation(table, client, impute, scale, columns)
    df = pd.DataFrame(table, columns=list(COLUMNS))
    return made.apply(df, [HOSPITALS[k] for k in client])
