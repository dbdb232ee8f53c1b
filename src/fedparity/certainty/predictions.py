"""What two runs have said of the same examples, and McNemar's test on it."""

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
    both = beside(*(_rights(in_use(table, split)) for table in (first, second)))
    return mcnemar(both["right_1"].astype(bool), both["right_2"].astype(bool))


def in_use(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the predictions of the models that clients really use: personal ones, if there are."""
    rows = table[table["split"] == split]
    own = rows["model"] == "personal"
    return rows[own if own.any() else rows["model"] == "global"]


def beside(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Join two tables of predictions example by example, their columns ending in _1 and _2.

    Other examples, or other targets, are refused.
    """
    one, two = (table.astype({"client": str}) for table in (first, second))
    both = one.merge(
        two, on=KEYS, how="outer", suffixes=("_1", "_2"), validate="1:1", indicator=True
    )
    same = len(both) and (both["_merge"] == "both").all()
    if same and "target_1" in both:
        same = (both["target_1"] == both["target_2"]).all()
    if not same:
        raise InputError("the two runs were not tested on the same examples: compare one dealing")
    return both


def _rights(rows: pd.DataFrame) -> pd.DataFrame:
    """Return of each example whether its prediction is right."""
    said = [name for name in rows if str(name).startswith("output_")]
    if not said:
        raise InputError("McNemar's test needs predictions of classes")
    right = rows[said].to_numpy().argmax(1) == rows["target"].to_numpy()
    return rows[[*KEYS, "target"]].assign(right=right)
