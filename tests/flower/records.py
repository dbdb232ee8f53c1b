"""Made-up records in the form of the four hospitals' files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedparity.data.heart import CATEGORIES, COLUMNS, HOSPITALS

RANGES = {
    "age": (30, 75),
    "trestbps": (95, 190),
    "chol": (130, 400),
    "thalach": (80, 200),
    "oldpeak": (0, 5),
    "ca": (0, 4),
    "num": (0, 5),
}


def write_records(folder: Path, patients: int = 40) -> None:
    """Write a file for each hospital; a tenth of the values is missing, the Swiss have no chol."""
    rng = np.random.default_rng(0)
    (folder / "heart-disease").mkdir(parents=True)
    for hospital in HOSPITALS:
        lines = [_patient(rng, hospital) for _ in range(patients)]
        file = folder / "heart-disease" / f"processed.{hospital}.data"
        file.write_text("\n".join(lines) + "\n")


def _patient(rng: np.random.Generator, hospital: str) -> str:
    values = {}
    for name in COLUMNS:
        levels = CATEGORIES.get(name, range(*RANGES.get(name, (0, 2))))
        values[name] = str(rng.choice(list(levels)))
        if name != "num" and rng.random() < 0.1:
            values[name] = "?"
    if hospital == "switzerland":
        values["chol"] = "0"
    return ",".join(values.values())
