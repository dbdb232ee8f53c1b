"""Going on with a run: the same numbers as without the pause, or a refusal with its reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import fedparity as fp
from fedparity.errors import InputError
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients


class Interrupted(Exception):
    pass


class StopAt(Silent):
    """Interrupts a run in a stage, when so many of its steps are done."""

    def __init__(self, done: int, stage: str = "") -> None:
        self.done, self.wanted, self.now = done, stage, ""

    def stage(self, text: str, total: int) -> None:
        self.now = text

    def advance(self, done: int, note: str = "") -> None:
        if done == self.done and self.wanted in self.now:
            raise Interrupted


def experiment(federation, algorithm="momentum+prox", **more) -> Experiment:
    known = {
        "rounds": 8,
        "solver": fp.Solver(lr=0.1, steps=2, batch=3, decay=0.9),
        "lstar": "none",
        "checkpoint_every": 3,
        "evaluate_every": 2,
        "cohort": 3,
        "drop": 0.2,
        **more,
    }
    return Experiment(federation, "linear", algorithm, **known)


def interrupted(made: Experiment, out: Path, done: int, stage: str = "") -> None:
    with pytest.raises(Interrupted):
        made.run(out=out, watch=StopAt(done, stage))


def final(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def rounds_logged(folder: Path) -> list[int]:
    return [json.loads(line)["round"] for line in (folder / "log.jsonl").read_text().splitlines()]


def same(one: Path, other: Path) -> None:
    mine, theirs = final(one), final(other)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    for table in ("history", "clients"):
        a, b = (pd.read_parquet(folder / f"{table}.parquet") for folder in (one, other))
        pd.testing.assert_frame_equal(a, b)
    assert rounds_logged(one) == rounds_logged(other)


@pytest.mark.parametrize("done", [0, 1, 3, 5, 8])
def test_a_resumed_run_is_the_uninterrupted_one(unlike, tmp_path, done):
    made = experiment(unlike)
    made.run(out=tmp_path / "whole")
    interrupted(made, tmp_path / "parts", done)
    made.resume(tmp_path / "parts")
    same(tmp_path / "parts", tmp_path / "whole")


def test_a_run_can_be_interrupted_again_and_again(unlike, tmp_path):
    made = experiment(
        unlike, "eagle(lam=0.1)+momentum", lstar="best_validation(rounds=5)", cohort=None
    )
    made.run(out=tmp_path / "whole")
    interrupted(made, tmp_path / "parts", 2, stage="eagle")
    for done in (4, 5, 7):
        with pytest.raises(Interrupted):
            made.resume(tmp_path / "parts", watch=StopAt(done, "eagle"))
    made.resume(tmp_path / "parts")
    same(tmp_path / "parts", tmp_path / "whole")


def test_a_run_interrupted_before_its_first_checkpoint_starts_again(unlike, tmp_path):
    made = experiment(unlike, lstar="best_validation(rounds=5)")
    made.run(out=tmp_path / "whole")
    other = experiment(unlike, lstar="best_validation(rounds=5)", seed=1)
    interrupted(other, tmp_path / "parts", 2, stage="alone")
    assert not (tmp_path / "parts" / "checkpoint").exists()
    with pytest.raises(InputError, match="its seed is 1, here it is 0"):
        made.resume(tmp_path / "parts")
    other.resume(tmp_path / "parts")
    other.run(out=tmp_path / "other")
    same(tmp_path / "parts", tmp_path / "other")


def test_a_finished_run_can_be_resumed_to_more_rounds(unlike, tmp_path):
    experiment(unlike, rounds=8).run(out=tmp_path / "whole")
    experiment(unlike, rounds=4).run(out=tmp_path / "parts")
    experiment(unlike, rounds=8).resume(tmp_path / "parts")
    same(tmp_path / "parts", tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(unlike, tmp_path):
    made = experiment(unlike)
    made.run(out=tmp_path / "whole")
    made.run(out=tmp_path / "again")
    made.resume(tmp_path / "again")
    same(tmp_path / "again", tmp_path / "whole")


@pytest.mark.filterwarnings("ignore:.*diverged")
@pytest.mark.parametrize("keep", ["mean_loss", "worst_accuracy"])
def test_the_best_model_is_remembered_and_the_last_one_goes_on(unlike, tmp_path, keep):
    wild = {"keep": keep, "solver": fp.Solver(lr=20.0, steps=1), "evaluate_every": 1}
    experiment(unlike, rounds=8, **wild).run(out=tmp_path / "whole")
    experiment(unlike, rounds=4, **wild).run(out=tmp_path / "parts")
    experiment(unlike, rounds=8, **wild).resume(tmp_path / "parts")
    same(tmp_path / "parts", tmp_path / "whole")
    one, other = (fp.Result.load(tmp_path / name).settings for name in ("parts", "whole"))
    assert one["rounds"] == 8
    assert one["record"]["kept_round"] == other["record"]["kept_round"]


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_early_stopping_counts_on_after_a_resume(unlike, tmp_path):
    stopping = {
        "rounds": 60,
        "stop": fp.Stop(patience=4),
        "evaluate_every": 1,
        "solver": fp.Solver(lr=30.0, steps=1),
        "checkpoint_every": 1,
        "drop": 0.0,
    }
    made = experiment(unlike, "fedavg", **stopping)
    whole = made.run(out=tmp_path / "whole")
    assert whole.rounds < 60
    interrupted(made, tmp_path / "parts", whole.rounds - 2)
    assert made.resume(tmp_path / "parts").rounds == whole.rounds


def test_no_row_of_the_history_is_written_twice_after_a_lost_checkpoint(unlike, tmp_path):
    made = experiment(unlike, checkpoint_every=1)
    made.run(out=tmp_path / "whole")
    interrupted(made, tmp_path / "parts", 5)
    # Killed after the history of round 6 was written, before its checkpoint was.
    stale = tmp_path / "parts" / "history" / "000000006.parquet"
    pieces = sorted((tmp_path / "parts" / "history").iterdir())
    stale.write_bytes(pieces[-1].read_bytes())
    frame = pd.read_parquet(stale)
    frame.assign(round=6).to_parquet(stale, index=False)
    again = experiment(unlike, checkpoint_every=100)
    with pytest.raises(Interrupted):
        again.resume(tmp_path / "parts", watch=StopAt(7))
    again.resume(tmp_path / "parts")
    same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"algorithm": "prox"}, r"its algorithm is 'momentum.*here it is 'prox"),
        ({"seed": 5}, "its seed is 0, here it is 5"),
        ({"solver": fp.Solver(lr=0.2)}, "its solver"),
        ({"cohort": 2}, "its cohort is 3, here it is 2"),
        ({"drop": 0.0}, "its drop"),
        ({"dtype": "float64"}, "its federation|its dtype"),
        ({"weighting": "uniform"}, "its weighting"),
        ({"engine": "loop"}, "its engine is 'vmap', here it is 'loop'"),
        ({"keep": "mean_loss"}, "its keep"),
    ],
)
def test_another_experiment_is_refused_with_the_reason(unlike, tmp_path, other, said):
    experiment(unlike).run(out=tmp_path / "run")
    before = final(tmp_path / "run")
    with pytest.raises(InputError, match=said):
        experiment(unlike, **{"algorithm": "momentum+prox", **other}).resume(tmp_path / "run")
    assert all(torch.equal(before[n], t) for n, t in final(tmp_path / "run").items())


def test_other_data_are_refused(unlike, tmp_path):
    experiment(unlike).run(out=tmp_path / "run")
    with pytest.raises(InputError, match="its federation is"):
        experiment(unlike_clients(seed=1)).resume(tmp_path / "run")
    renamed = replace(unlike, names=("a", "b", "c", "d"))
    with pytest.raises(InputError, match="its federation is"):
        experiment(renamed).resume(tmp_path / "run")


def test_a_directory_that_holds_something_is_not_written_to(unlike, tmp_path):
    made = experiment(unlike)
    made.run(out=tmp_path / "run")
    with pytest.raises(InputError, match="fedparity resume"):
        made.run(out=tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(InputError, match="not an empty directory"):
        made.run(out=tmp_path / "thesis")
    with pytest.raises(InputError, match=r"no experiment\.yaml"):
        made.resume(tmp_path / "thesis")
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_a_run_is_rerun_and_resumed_from_its_directory_alone(tmp_path):
    digits = fp.datasets.digits().split("dirichlet(alpha=0.5)", clients=3, seed=0)
    made = Experiment(
        digits, fp.Classification("mlp(hidden=4)"), "fedprox(mu=0.5)", rounds=3, lstar="none"
    )
    made.run(out=tmp_path / "run")
    fp.load(tmp_path / "run").run(out=tmp_path / "again")
    same(tmp_path / "again", tmp_path / "run")
    longer = fp.resume(tmp_path / "run", rounds=5)
    assert longer.rounds == 5
    assert fp.load(tmp_path / "run").rounds == 5
    loaded = fp.Result.load(tmp_path / "run")
    pd.testing.assert_frame_equal(loaded.clients, longer.clients)
    for mine, theirs in zip(loaded.model().parameters(), longer.model().parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_run_without_a_directory_writes_nothing(unlike, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = experiment(unlike).run()
    assert result.path is None
    assert not list(tmp_path.iterdir())


def test_rounds_of_each_client_are_counted_across_a_pause(unlike, tmp_path):
    made = experiment(unlike)
    interrupted(made, tmp_path / "run", done=5)
    resumed = made.resume(tmp_path / "run").clients
    straight = made.run(tmp_path / "straight").clients
    assert resumed["rounds_answered"].tolist() == straight["rounds_answered"].tolist()
    log = (tmp_path / "straight" / "log.jsonl").read_text().splitlines()
    answered = [entry["answered"] for entry in map(json.loads, log) if "skipped" not in entry]
    assert straight["rounds_answered"].sum() == sum(answered)
