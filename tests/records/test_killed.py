"""A run whose process ends: by SIGKILL at any moment, or by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from victim import ROUNDS, VICTIM, experiment, launched, wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, torch.Tensor]:
    """The final parameters of the run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment().run(out=folder)
    return load_file(folder / "model.safetensors")


def same(folder: Path, whole: dict[str, torch.Tensor]) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], value) for name, value in whole.items())


def test_a_run_killed_in_the_middle_goes_on_to_the_same_bits(tmp_path, whole):
    process = launched(tmp_path / "run")
    wait_for(process, 20)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    checkpoint = json.loads((tmp_path / "run" / "checkpoint" / "state.json").read_text())
    assert checkpoint["round"] == 18
    assert experiment().resume(tmp_path / "run").rounds == ROUNDS
    same(tmp_path / "run", whole)


@pytest.mark.parametrize("rename", [4, 5])
def test_a_run_killed_while_it_writes_a_checkpoint_goes_on_to_the_same_bits(
    tmp_path, whole, rename
):
    # The first checkpoint is renamed once, every later one twice: out of the way and into place.
    done = subprocess.run(
        [sys.executable, VICTIM, str(tmp_path / "run"), str(rename)], timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    experiment().resume(tmp_path / "run")
    same(tmp_path / "run", whole)
    kept = sorted(file.name for file in (tmp_path / "run").glob("checkpoint*"))
    assert kept == ["checkpoint", "checkpoint.old"]


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_resume(tmp_path, whole):
    process = launched(tmp_path / "run")
    wait_for(process, 20)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate("\n", timeout=60)
    assert process.returncode != 0
    assert f"stopped after round 20: fedparity resume {tmp_path / 'run'}" in said
    checkpoint = json.loads((tmp_path / "run" / "checkpoint" / "state.json").read_text())
    assert checkpoint["round"] == 20
    experiment().resume(tmp_path / "run")
    same(tmp_path / "run", whole)
