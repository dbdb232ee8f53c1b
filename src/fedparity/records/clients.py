"""The table of clients that a run ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.data import Federation

Values = Mapping[str, npt.NDArray[np.float64]]


def clients_table(
    federation: Federation,
    values: Mapping[str, Values],
    lstar: pd.DataFrame | None,
    base: Mapping[str, Values] | None = None,
) -> pd.DataFrame:
    """Return one row a client from the evaluations of the three splits, L* and the base rates."""
    columns: dict[str, Any] = {"client": np.asarray(federation.names, dtype=object)}
    splits = ("train", "validation", "test")
    for split in splits:
        columns[f"n_{split}"] = getattr(federation, split).sizes
    missing = np.full(len(federation), np.nan)
    for split in splits:
        columns[f"{split}_loss"] = values.get(split, {}).get("loss", missing)
    metrics = dict.fromkeys(m for found in values.values() for m in found if m != "loss")
    for metric in metrics:
        for split in splits[1:]:
            columns[f"{split}_{metric}"] = values.get(split, {}).get(metric, missing)
    for split in splits[1:]:
        columns[f"{split}_lstar"] = missing if lstar is None else lstar[split].to_numpy()
    for split in splits[1:]:
        columns[f"{split}_gap"] = columns[f"{split}_loss"] - columns[f"{split}_lstar"]
    for split, found in (base or {}).items():
        columns |= {f"{split}_base_{name}": numbers for name, numbers in found.items()}
    if lstar is not None:
        for split in splits[1:]:
            if f"{split}_accuracy" in lstar:
                columns[f"{split}_alone_accuracy"] = lstar[f"{split}_accuracy"].to_numpy()
        columns["lstar_rounds"] = lstar["rounds"].to_numpy()
        columns["lstar_capped"] = lstar["capped"].to_numpy()
    return pd.DataFrame(columns)
