"""The app of an experiment also runs in Flower's own simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')
pytest.importorskip("ray", reason='Ray is not installed: pip install "flwr[simulation]"')

from runs import assert_same

from fedparity.deploy.app import new_app
from fedparity.records.rundir import RunDir, read_yaml
from fedparity.run.file import experiment as read_experiment

EXPERIMENT = """\
data: eagle_synthetic(n=100)
model: linear
algorithm: eagle(lam=1)
solver: {lr: 0.1, steps: 5, batch: 16}
rounds: 2
evaluate_every: 2
engine: loop
"""


@pytest.mark.filterwarnings("ignore:eagle. clients of small gaps")
def test_flowers_simulation_gives_the_bits_of_the_simulator(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT)
    new_app(tmp_path / "app", file)
    subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("simulated.py"),
            tmp_path / "app",
            tmp_path / "run",
        ],
        env={**os.environ, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"},
        timeout=300,
        check=True,
    )
    read_experiment(read_yaml(file)).run(out=tmp_path / "simulated")
    assert_same(RunDir(tmp_path / "run"), RunDir(tmp_path / "simulated"))
