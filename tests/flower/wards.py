"""Tables of three wards: text, gaps, a class and a word that one of them lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

WARDS = ("ward-2", "ward-10", "ward-11")  # in natural order
DATA: dict[str, Any] = {
    "client": "ward",
    "target": "outcome",
    "groups": ["sex"],
    "fractions": [0.6, 0.2, 0.2],
}
SETTINGS: dict[str, Any] = {
    "model": "linear",
    "rounds": 2,
    "solver": {"lr": 0.1, "steps": 3, "batch": 8},
    "lstar": "best_validation(rounds=2)",
    "evaluate_every": 2,
    "metrics": ["auc", "log_loss"],
}


def ward(name: str, n: int = 40) -> pd.DataFrame:
    """Return the patients of one ward: ward-11 measures no dose, ward-2 has two outcomes."""
    rng = np.random.default_rng(sum(map(ord, name)))
    smoker = rng.choice(["no", "yes"] if name == "ward-2" else ["no", "yes", "former"], n)
    outcome = np.array(["home", "moved", "worse"])[np.arange(n) % (2 if name == "ward-2" else 3)]
    return pd.DataFrame(
        {
            "ward": name,
            "age": np.where(np.arange(n) % 7 == 3, np.nan, rng.normal(50 + n / 10, 10, n)),
            "smoker": np.where(np.arange(n) % 9 == 4, None, smoker.astype(object)),
            "dose": np.full(n, np.nan) if name == "ward-11" else rng.normal(5000, 900, n),
            "sex": rng.choice(["f", "m"], n),
            "outcome": outcome,
        }
    )


def write_wards(folder: Path, sizes: tuple[int, ...] = (40, 31, 52)) -> Path:
    """Write one table of all wards, its rows interleaved, and return the file."""
    table = pd.concat([ward(name, n) for name, n in zip(WARDS, sizes, strict=True)])
    order = np.random.default_rng(0).permutation(len(table))
    file = folder / "wards.csv"
    table.iloc[order].to_csv(file, index=False)
    return file
