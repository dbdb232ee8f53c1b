"""The examples run."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

import fedparity as fp
from fedparity.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(file: Path) -> ModuleType:
    """Return the module of an example."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:eagle")
def test_the_combinations_run():
    module = load(EXAMPLES / "combinations.py")
    table = module.compare(rounds=2)
    assert list(table.index) == list(module.COMBINATIONS)
    assert table.notna().all().all()


def test_four_hospitals_go_from_csv_to_the_comparison(tmp_path, monkeypatch, capsys):
    folder = EXAMPLES / "hospitals_csv"
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```console\n\$ (.*?)\n```", (folder / "README.md").read_text(), re.DOTALL)
    commands = [shlex.split(block) for block in blocks]
    assert [command[0] for command in commands] == ["python", *["fedparity"] * 3]
    load(folder / "make_hospitals.py").main(Path(commands[0][2]))
    for command in commands[1:]:
        with pytest.raises(SystemExit) as end:
            main(command[1:])
        assert end.value.code == 0
    told = capsys.readouterr().out
    assert "column 'smoker' misses" in " ".join(told.split())
    assert all(hospital in told for hospital in ("north", "south", "east", "west"))
    runs = sorted(path.parent.name for path in Path("compared").glob("*/preparation.json"))
    assert runs == ["eagle-lam1", "fedavg"]
    said = pd.read_csv("said.csv")
    assert "disease" not in said
    assert set(said["prediction"]) == {"no", "yes"}
    prepared = fp.data.Preparation.load("compared/fedavg")
    assert prepared.outputs == (
        *("age", "blood_pressure", "smoker=current", "smoker=former", "smoker=never"),
    )


@pytest.mark.data
def test_states_of_the_census_are_compared_by_group(real_data):
    results = load(EXAMPLES / "acs_states.py").compare(share=0.01, rounds=2)
    assert all(len(result.clients) == 51 for result in results.values())
    assert "sex" in results["afl"].groups


def test_the_states_are_skipped_without_their_data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPARITY_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="skipped: acs_income: no file"):
        load(EXAMPLES / "acs_states.py").main()
