"""Write four made-up hospitals, each a CSV with text columns and gaps, and new patients.

python make_hospitals.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITALS = {"north": 180, "south": 120, "east": 60, "west": 40}


def patients(hospital: str, n: int) -> pd.DataFrame:
    """Return the patients of one hospital; older ones and more gaps in the west."""
    place = list(HOSPITALS).index(hospital)
    rng = np.random.default_rng(place)
    age = rng.normal(50 + 5 * place, 12, n).round()
    pressure = rng.normal(120 + age / 4, 12, n).round()
    smoker = rng.choice(["never", "former", "current"], n, p=[0.5, 0.3, 0.2])
    risk = (age - 55) / 12 + (pressure - 134) / 15 + 1.2 * (smoker == "current") - 0.3
    table = pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice(["female", "male"], n),
            "blood_pressure": pressure,
            "smoker": smoker,
            "disease": np.where(risk + rng.logistic(0, 0.7, n) > 0, "yes", "no"),
        }
    )
    for column, share in (("blood_pressure", 0.05 + 0.1 * place), ("smoker", 0.1)):
        table.loc[rng.random(n) < share, column] = None
    return table


def main(folder: Path) -> None:
    """Write a file a hospital, and beside the folder one of patients without a diagnosis."""
    folder.mkdir(parents=True, exist_ok=True)
    for hospital, n in HOSPITALS.items():
        patients(hospital, n).to_csv(folder / f"{hospital}.csv", index=False)
    patients("west", 50).tail(10).drop(columns="disease").to_csv(
        folder.parent / "new.csv", index=False
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
