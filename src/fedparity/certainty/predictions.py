"""McNemar's test on the predictions that two runs have kept."""

from __future__ import annotations

import pandas as pd

from fedparity.errors import InputError
from fedparity.metrics import McNemar, mcnemar

KEYS = ["client", "index"]


def mcnemar_of(first: pd.DataFrame, second: pd.DataFrame, *, split: str = "test") -> McNemar:
    """Test whether two runs' models, as clients use them, are right equally often.

    Both are tables of :attr:`fedparity.Result.predictions` of one classification, on the same
    examples: other examples, or other targets, are refused.
    """
    one, two = (_rights(table, split) for table in (first, second))
    both = one.merge(two, on=KEYS, how="outer", suffixes=("_1", "_2"), validate="1:1")
    if not len(both) or both.isna().any(axis=None) or (both["target_1"] != both["target_2"]).any():
        raise InputError("the two runs were not tested on the same examples: compare one dealing")
    return mcnemar(both["right_1"].astype(bool), both["right_2"].astype(bool))


def _rights(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return of each example whether the model that its client uses is right."""
    said = [name for name in table if str(name).startswith("output_")]
    if not said:
        raise InputError("McNemar's test needs predictions of classes")
    rows = table[table["split"] == split]
    used = rows[rows["model"] == ("personal" if (rows["model"] == "personal").any() else "global")]
    right = used[said].to_numpy().argmax(1) == used["target"].to_numpy()
    return used[[*KEYS, "target"]].astype({"client": str}).assign(right=right)
