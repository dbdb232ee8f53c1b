"""Breast cancer patients of The Cancer Genome Atlas, as FLamby prepared and dealt them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.errors import InputError


@checked
def tcga_brca(
    intervals: Annotated[int, Field(ge=1, le=1000)] = 10,
    days: Annotated[float, Field(gt=0)] = 365.25,
    data_dir: Path | str | None = None,
) -> Dataset:
    """1,088 patients with breast cancer in 6 regions: how long they live is to be told.

    39 features (the age in centuries, the others 0 or 1) and survival in ``intervals`` of so many
    ``days``. Natural clients are FLamby's six centres, regions of where the sample was taken, and
    its test patients are the official ones. Three tables in ``tcga-brca``: ``tcga_brca.csv``,
    ``tcga_train_test_split.csv`` and ``tcga_centers.csv``.

    References
    ----------
    Ogier du Terrail et al. FLamby: datasets and benchmarks for cross-silo federated learning in
    realistic healthcare settings. NeurIPS 2022.
    """
    remedy = "get the tables of FLamby's Fed-TCGA-BRCA (github.com/owkin/FLamby)"
    patients, split, centres = (
        _table(find("tcga_brca", data_dir, (f"tcga-brca/{name}.csv",), remedy))
        for name in ("tcga_brca", "tcga_train_test_split", "tcga_centers")
    )
    for table, columns in ((patients, "pid E T"), (split, "pid fold fold2"), (centres, "Region")):
        missing = [name for name in columns.split() if name not in table.columns]
        if missing:
            raise InputError(f"tcga_brca: a file has no column '{missing[0]}': get them again")
    joined = patients.merge(split, on="pid", validate="one_to_one")
    features = [name for name in patients.columns if name not in ("pid", "E", "T")]
    x = joined[features].to_numpy(dtype=np.float32)
    x[:, features.index("age_at_index")] /= 100
    y = np.stack([joined["T"].to_numpy(dtype=np.float64) / days, joined["E"].to_numpy()], 1)
    client = joined["fold2"].str.rsplit("_").str[-1].astype(int).to_numpy()
    region = dict(zip(centres["TSS Code"], centres["Region"], strict=True))
    homes = joined["pid"].str[5:7].map(region)
    names = [str(homes[client == k].mode().iloc[0]) for k in range(int(client.max()) + 1)]
    return Dataset(
        "tcga_brca",
        x,
        y,
        intervals,
        "survival",
        natural=client.astype(np.int64),
        natural_names=tuple(names),
        held_out=(joined["fold"] == "test").to_numpy(),
    ).named("tcga_brca", intervals=intervals, days=days)


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is not a table: {str(error).splitlines()[0]}") from None
