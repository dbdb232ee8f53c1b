"""The example of four hospitals, on made-up records."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

import tomli

import fedparity as fp
from fedparity.data.heart import HOSPITALS
from fedparity.deploy.app import clients_of, new_app
from records import write_records

FOLDER = Path(__file__).parents[2] / "examples" / "hospitals"


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    write_records(tmp_path)
    monkeypatch.setenv("FEDPARITY_DATA", str(tmp_path))
    monkeypatch.delenv("HOSPITAL_FILE", raising=False)
    spec = importlib.util.spec_from_file_location("hospitals_task", FOLDER / "task.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(federation: fp.Federation) -> np.ndarray:
    """Return all inputs and labels of a federation, in an order of their own."""
    splits = (federation.train, federation.validation, federation.test)
    table = np.concatenate([np.c_[split.x.numpy(), split.y.numpy()] for split in splits])
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("hospital", HOSPITALS)
def test_a_hospital_finds_in_its_own_file_what_the_simulator_gives_it(
    task, hospital, tmp_path, monkeypatch
):
    simulated = task.load(hospital)
    file = tmp_path / "heart-disease" / f"processed.{hospital}.data"
    monkeypatch.setenv("HOSPITAL_FILE", str(file))
    own = task.load(hospital)
    assert own.names == simulated.names == (hospital,)
    np.testing.assert_array_equal(rows(own), rows(simulated))


def test_the_app_is_the_one_that_is_written_for_the_experiment(task, tmp_path):
    new_app(tmp_path / "hospitals", FOLDER / "experiment.yaml")
    for name in ("client_app.py", "server_app.py"):
        assert (FOLDER / name).read_text() == (tmp_path / "hospitals" / name).read_text()
    assert clients_of(FOLDER) == list(HOSPITALS)
    written, here = (
        tomli.loads((folder / "pyproject.toml").read_text())
        for folder in (tmp_path / "hospitals", FOLDER)
    )
    assert here["tool"] == written["tool"]
