"""Runs whose clients are written by hand, for the tests of reports."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedparity import Classification, Result


def run(
    accuracy: list[float] | None = None,
    loss: list[float] | None = None,
    lstar: list[float] | None = None,
    *,
    n_test: list[int] | None = None,
    names: list[str] | None = None,
    answered: list[int] | None = None,
    kept: bool = True,
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
    found = Result(pd.DataFrame(columns), pd.DataFrame(), settings, rounds=5)
    if kept and loss is not None and lstar is not None:
        tables = map(_examples, found.clients["client"], loss, lstar)
        found.keep(pd.concat(tables), None, Classification("linear"), None, {})
    return found


def _examples(client: str, loss: float, lstar: float) -> pd.DataFrame:
    """Return 100 test examples, whose gaps are 0.1 above or below the client's."""
    apart = np.tile([0.1, -0.1], 50)
    rows = {"client": client, "split": "test", "index": range(100)}
    shared = pd.DataFrame({**rows, "model": "global", "loss": loss + apart})
    return pd.concat([shared, pd.DataFrame({**rows, "model": "alone", "loss": lstar})])
