"""Tables as hospitals send them: text, gaps, sites of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

SITES = ("site-1", "site-2", "site-10")


def patients(site: str, n: int = 40) -> pd.DataFrame:
    """Return the patients of one site; a tenth of ages and of smoking is missing."""
    rng = np.random.default_rng(sum(map(ord, site)))
    age = rng.normal(50 + 5 * SITES.index(site), 10, n).round(1)
    smoker = rng.choice(["no", "yes", "former"], n).astype(object)
    return pd.DataFrame(
        {
            "age": np.where(np.arange(n) % 10 == 3, np.nan, age),
            "smoker": np.where(np.arange(n) % 10 == 4, None, smoker),
            "sex": rng.choice(["f", "m"], n),
            "dose": rng.normal(5000, 1000, n).round(),
            "disease": np.where(age + 10 * (smoker == "yes") > 55, "yes", "no"),
        }
    )


def together(n: int = 40) -> pd.DataFrame:
    """Return the patients of all sites with a column of the site."""
    return pd.concat([patients(site, n).assign(hospital=site) for site in SITES], ignore_index=True)


def write_sites(folder: Path, n: int = 40) -> None:
    """Write a file for each site."""
    folder.mkdir()
    for site in SITES:
        patients(site, n).to_csv(folder / f"{site}.csv", index=False)
