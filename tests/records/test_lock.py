"""Two who want the same run directory: the first keeps it, the second is told who has it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from victim import ROUNDS, experiment, launched, wait_for

from fedparity.cli import main
from fedparity.errors import InputError
from fedparity.records.lock import LOCK, held

HELD = "is in use by fedparity \\(pid {pid} on .*: eagle"


def test_a_folder_is_held_by_one_at_a_time(tmp_path):
    with held(tmp_path, "eagle"):
        with (
            pytest.raises(InputError, match=HELD.format(pid=os.getpid())),
            held(tmp_path, "afl"),
        ):
            pass
        assert (tmp_path / LOCK).exists()
    with held(tmp_path, "afl"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_is_given_back_after_an_error(tmp_path):
    with pytest.raises(KeyError), held(tmp_path, "eagle"):
        raise KeyError
    with held(tmp_path, "eagle"):
        pass


def test_a_lock_file_left_behind_holds_nobody_up(tmp_path):
    (tmp_path / LOCK).write_text('{"pid": 1, "host": "here", "what": "gone"}')
    experiment(rounds=1).run(out=tmp_path)
    assert not (tmp_path / LOCK).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_live_run_keeps_its_directory_and_a_killed_one_gives_it_back(tmp_path, capsys):
    folder = tmp_path / "run"
    process = launched(folder)
    try:
        wait_for(process, 20)
        told = HELD.format(pid=process.pid)
        before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        with pytest.raises(InputError, match=told):
            experiment().run(out=folder)
        with pytest.raises(InputError, match=told):
            experiment().resume(folder)
        with pytest.raises(SystemExit, match="2"):
            main(["resume", str(folder)])
        said = capsys.readouterr().err
        assert f"{folder} is in use by fedparity (pid {process.pid} on " in said
        assert said.count("\n") == 1
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    finally:
        process.kill()
        process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert experiment().resume(folder).rounds == ROUNDS


def test_a_live_run_ends_as_if_nobody_had_wanted_its_directory(tmp_path):
    folder = tmp_path / "run"
    process = launched(folder)
    try:
        wait_for(process, 20)
        with pytest.raises(InputError, match="is in use by"):
            experiment().resume(folder)
        _, said = process.communicate("\n", timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, said
    experiment().run(out=tmp_path / "alone")
    mine, alone = (load_file(Path(f) / "model.safetensors") for f in (folder, tmp_path / "alone"))
    assert all(torch.equal(mine[name], alone[name]) for name in alone)


def test_of_two_that_begin_at_once_one_runs(tmp_path):
    folder = tmp_path / "run"
    both = [launched(folder) for _ in range(2)]
    try:
        ends = [process.communicate("\n", timeout=600) for process in both]
    finally:
        for process in both:
            process.kill()
    assert sorted(process.returncode for process in both) == [0, 1]
    (said,) = (err for process, (_, err) in zip(both, ends, strict=True) if process.returncode)
    assert "is in use by" in said or "already holds a run" in said
