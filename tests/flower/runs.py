"""Comparison of run directories."""

from __future__ import annotations

import pandas as pd

from fedparity.records.rundir import RunDir


def assert_same(deployed: RunDir, simulated: RunDir) -> None:
    """Hold a deployed run against a simulated one, to the last bit."""
    assert deployed.model.read_bytes() == simulated.model.read_bytes()
    for file in ("history", "clients", "lstar"):
        one, two = (pd.read_parquet(getattr(run, file)) for run in (deployed, simulated))
        pd.testing.assert_frame_equal(one, two, check_exact=True)
