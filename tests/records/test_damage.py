"""A run directory that was damaged: the checkpoint before, or one line that names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import fedparity as fp
from fedparity.errors import DamagedError
from fedparity.records.checksums import Checksums
from fedparity.records.lock import held
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients

ROUNDS = 6
CHECKSUMS = "checksums.json"


class Interrupted(Exception):
    pass


class StopAt(Silent):
    """Interrupts a run after its fifth round, one after its last checkpoint."""

    def advance(self, done: int, note: str = "") -> None:
        if done == 5:
            raise Interrupted


def experiment() -> Experiment:
    return Experiment(
        unlike_clients(),
        "linear",
        "momentum",
        rounds=ROUNDS,
        solver=fp.Solver(lr=0.1, steps=2, batch=3),
        lstar="best_validation(rounds=2)",
        checkpoint_every=2,
        evaluate_every=1,
    )


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Path:
    """Two directories: of a run that finished, and of one that was interrupted."""
    folder = tmp_path_factory.mktemp("runs")
    experiment().run(out=folder / "finished")
    with pytest.raises(Interrupted):
        experiment().run(out=folder / "interrupted", watch=StopAt())
    return folder


Copy = Callable[[str], Path]


@pytest.fixture
def copy(originals, tmp_path) -> Copy:
    def copied(name: str) -> Path:
        return shutil.copytree(originals / name, tmp_path / name)

    return copied


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def same(one: Path, other: Path) -> None:
    mine, theirs = (fp.Result.load(folder) for folder in (one, other))
    pd.testing.assert_frame_equal(mine.clients, theirs.clients)
    pd.testing.assert_frame_equal(mine.history, theirs.history)
    a, b = ((folder / "model.safetensors").read_bytes() for folder in (one, other))
    assert a == b


def rounds_logged(run: Path) -> list[int]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line["round"] for line in lines if "lr" in line]


@pytest.mark.parametrize("file", ["state.json", "state.safetensors", CHECKSUMS])
def test_the_checkpoint_before_stands_in_for_a_damaged_one(originals, copy, file):
    run = copy("interrupted")
    flip(run / "checkpoint" / file)
    with pytest.warns(
        UserWarning, match=r"checkpoint/.* is damaged.*checkpoint before, of round 2"
    ):
        experiment().resume(run)
    same(run, originals / "finished")
    assert rounds_logged(run) == list(range(1, ROUNDS + 1))


def test_a_damaged_checkpoint_is_not_kept_as_the_one_before(copy):
    run = copy("interrupted")
    flip(run / "checkpoint" / "state.json")
    with pytest.warns(UserWarning, match="of round 2"), pytest.raises(Interrupted):
        experiment().resume(run, watch=StopAt())
    flip(run / "checkpoint" / "state.json")
    with pytest.warns(UserWarning, match="of round 2"):
        assert experiment().resume(run).rounds == ROUNDS


def test_damaged_history_is_made_again_from_the_checkpoint_before(originals, copy):
    run = copy("interrupted")
    flip(run / "history" / "000000004.parquet")
    with pytest.warns(UserWarning, match=r"the history in .* is damaged: .* of round 2"):
        experiment().resume(run)
    same(run, originals / "finished")


def test_without_a_whole_checkpoint_both_are_named(copy):
    run = copy("interrupted")
    flip(run / "checkpoint" / "state.json")
    (run / "checkpoint.old" / "state.safetensors").unlink()
    told = r"no whole checkpoint \(.*state.json is damaged; .*state.safetensors is missing\)"
    with pytest.raises(DamagedError, match=told):
        experiment().resume(run)


def test_early_history_that_is_damaged_ends_a_resume(copy):
    run = copy("interrupted")
    (run / "history" / "000000000.parquet").unlink()
    with pytest.raises(DamagedError, match=r"the history in .* is damaged"):
        experiment().resume(run)


def test_a_damaged_log_is_put_aside(originals, copy):
    run = copy("interrupted")
    flip(run / "log.jsonl")
    with pytest.warns(UserWarning, match=r"log.jsonl is damaged: .* log.damaged.jsonl"):
        experiment().resume(run)
    same(run, originals / "finished")
    assert (run / "log.damaged.jsonl").exists()
    assert rounds_logged(run) == [5, 6]


@pytest.mark.parametrize("file", ["lstar.parquet", "experiment.yaml", CHECKSUMS])
def test_a_resume_refuses_other_files_that_are_damaged(copy, file):
    run = copy("interrupted")
    flip(run / file)
    with pytest.raises(DamagedError):
        experiment().resume(run)


def test_l_star_of_a_checkpoint_is_not_computed_again(copy):
    run = copy("interrupted")
    (run / "lstar.parquet").unlink()
    with pytest.raises(DamagedError, match=r"lstar.parquet is missing"):
        experiment().resume(run)


@pytest.mark.parametrize("file", ["clients.parquet", "history.parquet", "experiment.yaml"])
def test_a_result_is_not_read_from_damaged_files(copy, file):
    run = copy("finished")
    flip(run / file)
    with pytest.raises(DamagedError, match=f"{file} is not as fedparity wrote it"):
        fp.Result.load(run)


def test_a_damaged_model_is_not_loaded(tmp_path):
    data = fp.datasets.digits().split("iid", clients=2, seed=0)
    made = Experiment(data, fp.Classification("linear"), "fedavg", rounds=1, lstar="none")
    made.run(out=tmp_path / "run")
    result = fp.Result.load(tmp_path / "run")
    flip(tmp_path / "run" / "model.safetensors")
    with pytest.raises(DamagedError, match=r"model.safetensors is not as fedparity wrote it"):
        result.model()
    (tmp_path / "run" / CHECKSUMS).unlink()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"nonsense")
    with (
        pytest.warns(UserWarning, match="unverified"),
        pytest.raises(fp.InputError, match="does not fit the model"),
    ):
        result.model()


def test_a_directory_without_checksums_is_read_and_resumed_with_a_word(originals, copy):
    run = copy("finished")
    (run / CHECKSUMS).unlink()
    with pytest.warns(UserWarning, match=r"has no checksums.json: it is read unverified"):
        result = fp.Result.load(run)
    pd.testing.assert_frame_equal(result.clients, fp.Result.load(originals / "finished").clients)
    with pytest.warns(UserWarning, match="unverified"):
        experiment().resume(run)  # takes checksums of what it finds
    same(run, originals / "finished")


def test_a_run_that_lost_all_checkpoints_begins_again(originals, copy):
    run = copy("interrupted")
    for folder in ("checkpoint", "checkpoint.old"):
        shutil.rmtree(run / folder)
    with pytest.warns(UserWarning, match="has no checkpoint: its run begins again"):
        experiment().resume(run)
    same(run, originals / "finished")


def test_a_finished_run_is_told_apart_from_one_that_is_writing_its_end(copy, monkeypatch):
    run = copy("interrupted")

    def killed(*_: object, **more: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr("fedparity.records.rundir.RunDir.update", killed)
        patch.setattr("fedparity.records.rundir.RunDir.reopen", lambda *_: None)
        with pytest.raises(Interrupted):
            experiment().resume(run)
    with pytest.raises(fp.InputError, match="is not finished"):
        fp.Result.load(run)
    experiment().resume(run)
    assert isinstance(fp.Result.load(run).frame.summary()["mean_loss"], float)


def test_killed_between_checksum_and_rename_a_known_file_is_found(originals, copy, monkeypatch):
    replace = Path.replace

    def dying(self: Path, target: Path) -> Path:
        if target.name == "experiment.yaml":
            raise Interrupted
        return replace(self, target)

    run = copy("interrupted")
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying)
            with pytest.raises(Interrupted):
                experiment().resume(run)
    experiment().resume(run)
    same(run, originals / "finished")


def test_a_live_directory_can_be_read(copy):
    run = copy("finished")
    with held(run, "another process"):
        assert fp.Result.load(run).rounds == ROUNDS


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"round": 4}'])
def test_a_checkpoint_of_odd_content_is_damaged_even_if_its_checksums_agree(copy, content):
    run = copy("interrupted")
    for folder in (run / "checkpoint", run / "checkpoint.old"):
        (folder / "state.json").write_text(content)
        Checksums(folder).take([folder / "state.json", folder / "state.safetensors"])
    with pytest.raises(DamagedError):
        experiment().resume(run)


def test_a_finished_run_without_checkpoint_keeps_its_results(copy):
    run = copy("finished")
    for folder in ("checkpoint", "checkpoint.old"):
        shutil.rmtree(run / folder, ignore_errors=True)
    with pytest.raises(DamagedError, match="no checkpoint to go on from"):
        experiment().resume(run)
    assert fp.Result.load(run).rounds == ROUNDS
