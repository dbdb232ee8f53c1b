"""Runs whose clients are written by hand, for the tests of reports."""

from __future__ import annotations

import pandas as pd

from fedparity import Result


def run(
    accuracy: list[float] | None = None,
    loss: list[float] | None = None,
    lstar: list[float] | None = None,
    *,
    n_test: list[int] | None = None,
    names: list[str] | None = None,
    answered: list[int] | None = None,
    alone: dict[str, list[float]] | None = None,
    **record: object,
) -> Result:
    """Return a run of as many clients as there are numbers, with 100 test examples each."""
    count = len(accuracy or loss or [])
    columns: dict[str, object] = {
        "client": names or [f"client-{k}" for k in range(count)],
        "n_train": [50] * count,
        "n_validation": [10] * count,
        "n_test": n_test or [100] * count,
        "test_loss": loss or [0.5] * count,
    }
    if accuracy is not None:
        columns["test_accuracy"] = accuracy
    if lstar is not None:
        columns |= {"test_lstar": lstar, **(alone or {})}
    if answered is not None:
        columns["rounds_answered"] = answered
    settings = {"algorithm": "any", "record": record}
    return Result(pd.DataFrame(columns), pd.DataFrame(), settings, rounds=5)
