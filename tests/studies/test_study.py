"""A study: a grid of runs, each done once, whatever happens meanwhile."""

from __future__ import annotations

import json

import pytest

import fedparity as fp
from fedparity.records.rundir import RunDir
from fedparity.run import driver
from fedparity.studies.address import Addresses
from fedparity.studies.schedule import Schedule, Task
from fedparity.studies.work import Order
from fedparity.testing import unlike_clients

SMALL = {"data": "synthetic(clients=3, alpha=2)", "model": "linear", "rounds": 2}
OWN = {"model": "linear", "rounds": 2, "lstar": "none", "dtype": "float64"}


def own(out, algorithms=("fedavg",), settings=OWN, seeds=1, **more):
    """A study of a federation made here: its runs are done in this process."""
    return fp.Study(settings, algorithms, out, federation=unlike_clients(), seeds=seeds, **more)


def plan(settings=SMALL, algorithms=("fedavg",), **more):
    return fp.Study(settings, algorithms, "unused", **more)


def addresses(*given, **more):
    return [run.address for run in plan(*given, **more).runs]


def test_every_combination_is_a_run():
    study = plan(algorithms=["fedavg", "qffl(q=2)"], grid={"solver.lr": [0.1, 0.2]}, seeds=3)
    assert len({run.address for run in study.runs}) == 2 * 2 * 3
    chosen = {(r.cell.label, r.cell.chosen["solver.lr"], r.cell.seed) for r in study.runs}
    assert chosen == {
        (a, lr, s) for a in ("fedavg", "qffl(q=2)") for lr in (0.1, 0.2) for s in (0, 1, 2)
    }


def test_a_setting_has_one_address_however_it_is_written():
    (usual,) = addresses(seeds=1)
    same = {
        **SMALL,
        "data": {"dataset": "synthetic( alpha=2,clients=3)"},
        "cohort": None,
        "checkpoint_every": 7,
        "solver": {"lr": fp.Solver().lr},
    }
    same["data"]["dataset"] = "synthetic(clients=3,alpha=2)"
    assert addresses(same, seeds=1) == [usual]
    for key, value in {"rounds": 3, "solver": {"lr": 0.123}, "model": "mlp"}.items():
        assert addresses({**SMALL, key: value}, seeds=1) != [usual]
    assert addresses(algorithms=["EAGLE"], seeds=1) == addresses(algorithms=["eagle()"], seeds=1)


def test_who_is_there_is_in_the_address_by_the_content_of_its_file(tmp_path):
    found = []
    for content in ("round,client\n1,client-1\n", "round,client\n1,client-2\n"):
        for name in ("one.csv", "two.csv"):
            (tmp_path / name).write_text(content)
            sampling = f"available(file='{tmp_path / name}')"
            found += addresses({**SMALL, "sampling": sampling}, seeds=1)
    assert found[0] == found[1] != found[2] == found[3]


def test_a_setting_that_is_as_always_is_not_in_the_address():
    allowed = plan().allowed
    found = Addresses(allowed).complete({**SMALL, "algorithm": "fedavg"})
    assert found["solver"] == {}
    assert set(found) == {"data", "model", "algorithm", "solver", "rounds"}


def test_the_seed_of_the_data_is_apart_from_that_of_training():
    study = plan(grid={"data.seed": [7]}, seeds=2)
    assert {run.cell.settings["data"]["seed"] for run in study.runs} == {7}
    assert [run.cell.seed for run in study.runs] == [0, 1]


def test_runs_that_share_data_and_seed_share_their_lstar():
    study = plan(algorithms=["fedavg", "qffl"], grid={"solver.lr": [0.1, 0.2]}, seeds=2)
    groups = {}
    for run in study.runs:
        groups.setdefault(run.alone, set()).add((run.cell.chosen["solver.lr"], run.cell.seed))
    assert len(groups) == 4
    assert all(len(shared) == 1 for shared in groups.values())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"grid": {"solver.lrr": [1]}}, "did you mean 'solver.lr'"),
        ({"grid": {"data": ["synthetic(alfa=1)"]}}, "did you mean 'alpha'"),
        ({"grid": {"rouns": [1]}}, "did you mean 'rounds'"),
        ({"grid": {"seed": [1]}}, "write 'seeds'"),
        ({"grid": {"model.hidden": [1]}}, "no settings inside"),
        ({"grid": {"rounds": []}}, "no value"),
        ({"algorithms": ["egale"]}, "did you mean 'eagle'"),
        ({"algorithms": []}, "at least one algorithm"),
        ({"algorithms": {"a": "eagle", "b": "eagle()"}}, "same algorithm"),
        ({"grid": {"rounds": [1, 1]}}, "asks twice for one run"),
        ({"grid": {"data": ["digits", {"dataset": "digits"}]}}, "asks twice for one run"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": [1, 1]}, "different"),
        ({"settings": {**SMALL, "rounds": 0}}, "rounds"),
        ({"settings": {"model": "linear"}}, "names no data"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(more, told):
    with pytest.raises(fp.InputError, match=told):
        plan(**more)


def test_a_finished_run_is_not_done_again(tmp_path, monkeypatch):
    first = own(tmp_path, ["fedavg", "qffl"]).run().by_run()
    assert list(first["state"]) == ["done", "done"]
    assert first["mean_accuracy"].notna().all()
    done = []
    monkeypatch.setattr(driver.Run, "start", lambda self: done.append(self))
    again = own(tmp_path, {"renamed": "qffl"}).run().by_run()
    assert not done
    assert again.loc[0, "mean_loss"] == first.loc[1, "mean_loss"]


def test_two_studies_share_a_directory_under_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("fedparity.studies.pool.COMMAND", ("false",))  # what runs do is not asked
    settings = {"data": "synthetic(clients=3)", "model": "linear", "rounds": 1, "lstar": "none"}
    for name, text in (("one", "fedavg"), ("two", "qffl")):
        fp.Study(settings, [text], tmp_path, seeds=1, name=name).run(workers=1)
    with pytest.raises(fp.InputError, match="holds the studies one, two: name the file of one"):
        fp.Study.load(tmp_path)
    one, two = (fp.Study.load(tmp_path / f"studies/{name}.yaml") for name in ("one", "two"))
    assert (one.out, one.name) == (tmp_path, "one")
    assert [*one.algorithms, *two.algorithms] == ["fedavg", "qffl"]
    assert two.runs[0].directory.parent == tmp_path / "runs"
    for name in ("", ".hidden", "../elsewhere"):
        with pytest.raises(fp.InputError, match="no name of a study"):
            fp.Study(settings, ["fedavg"], tmp_path, name=name)


def test_a_result_is_read_once_for_a_table(tmp_path, monkeypatch):
    study = own(tmp_path).run()
    whole, read = fp.Result.load.__func__, []
    loading = classmethod(lambda cls, path: read.append(path) or whole(cls, path))
    monkeypatch.setattr(fp.Result, "load", loading)
    study.by_run()
    assert len(read) == 1
    assert len(list(study.results())) == 1
    assert len(read) == 2


def test_a_run_is_that_of_the_experiment_itself(tmp_path):
    study = own(tmp_path, ["qffl(q=2)"]).run()
    ((_, result),) = study.results()
    alone = fp.Experiment(
        unlike_clients(), "linear", "qffl(q=2)", rounds=2, lstar="none", dtype="float64"
    ).run()
    assert result.clients.equals(alone.clients)


def test_a_failed_run_is_a_row_with_its_reason_and_can_be_run_again(tmp_path, monkeypatch):
    study = own(tmp_path, ["fedavg", "qffl"])
    whole = driver.Run.round

    def broken(self, state):
        if self.experiment.setup.algorithm.parts:
            raise fp.ClientError("client 'b' failed")
        return whole(self, state)

    monkeypatch.setattr(driver.Run, "round", broken)
    table = study.run().by_run()
    assert list(table["state"]) == ["done", "failed"]
    assert table.loc[1, "reason"] == "client 'b' failed"
    monkeypatch.setattr(driver.Run, "round", whole)
    assert list(study.run().by_run()["state"]) == ["done", "failed"]
    assert list(study.run(again="failed").by_run()["state"]) == ["done", "done"]


def test_a_diverged_run_is_a_row_with_its_reason(tmp_path):
    settings = {**OWN, "rounds": 8, "solver": {"lr": 1e30}, "model": "mlp"}
    with pytest.warns(UserWarning, match="diverged"):
        table = own(tmp_path, settings=settings).run().by_run()
    assert table.loc[0, "state"] == "diverged"
    assert "learning rate" in table.loc[0, "reason"]


def test_a_damaged_run_is_left_alone_until_it_is_asked_for(tmp_path):
    study = own(tmp_path).run()
    folder = RunDir(study.runs[0].directory)
    folder.clients.write_bytes(b"damaged")
    table = study.run().by_run()
    assert table.loc[0, "state"] == "damaged"
    assert "clients.parquet" in table.loc[0, "reason"]
    assert folder.clients.read_bytes() == b"damaged"
    assert study.run(again=["damaged"]).by_run().loc[0, "state"] == "done"
    aside = folder.path.with_name(f"{folder.path.name}.damaged-1")
    assert (aside / "clients.parquet").read_bytes() == b"damaged"


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    whole, rounds = driver.Run.round, []

    def stopping(self, state):
        whole(self, state)
        rounds.append(state.round)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    study = own(tmp_path, settings={**OWN, "rounds": 3, "checkpoint_every": 1})
    monkeypatch.setattr(driver.Run, "round", stopping)
    with pytest.raises(KeyboardInterrupt):
        study.run()
    assert study.by_run().loc[0, "state"] == "begun"
    study.run()
    assert rounds == [1, 2, 2, 3]  # the second was not saved yet
    assert study.by_run().loc[0, "state"] == "done"


def test_a_full_disk_stops_the_study_with_what_is_done(tmp_path, monkeypatch):
    whole = RunDir.save

    def full(self, state, history):
        if "qffl" in self.experiment.read_text():
            raise OSError(28, "No space left on device")
        whole(self, state, history)

    study = own(tmp_path, ["fedavg", "qffl", "afl"])
    monkeypatch.setattr(RunDir, "save", full)
    with pytest.raises(fp.FedparityError, match="1 of 3 runs are done and intact"):
        study.run()
    assert list(study.by_run()["state"]) == ["done", "begun", "waiting"]
    monkeypatch.setattr(RunDir, "save", whole)
    assert list(study.run().by_run()["state"]) == ["done"] * 3


def test_what_is_left_of_a_run_killed_at_once_is_no_obstacle(tmp_path):
    study = own(tmp_path)
    folder = study.runs[0].directory
    folder.mkdir(parents=True)
    (folder / "experiment.yaml.part").write_text("half")
    assert study.run().by_run().loc[0, "state"] == "done"


def test_only_one_run_looks_for_an_lstar_that_several_share():
    def task(name, alone):
        return Task(name, Order({}, None), alone)

    schedule = Schedule([task("a", "x"), task("b", "x"), task("c", "y"), task("d", None)])
    first = schedule.next()
    assert first.name == "a"
    assert [schedule.next().name, schedule.next().name] == ["c", "d"]
    assert schedule.next() is None
    schedule.known(first)
    assert schedule.next().name == "b"


def test_processes_do_what_is_done_here_and_a_lost_one_is_a_row(tmp_path, monkeypatch):
    settings = {"data": "synthetic(clients=3)", "model": "linear", "rounds": 1, "lstar": "none"}
    study = fp.Study(settings, ["fedavg", "qffl"], tmp_path, seeds=1)
    boards = []
    (tmp_path / "pandas.py").write_text("raise SystemExit('code of the current directory')")
    monkeypatch.chdir(tmp_path)
    study.run(watch=lambda board: boards.append((board.done, len(board.running))))
    assert boards[-1] == (2, 0)
    table = study.by_run()
    assert list(table["state"]) == ["done", "done"], table["reason"].tolist()
    here = fp.load(study.runs[1].directory).run()
    assert here.summary()["mean_loss"] == pytest.approx(table.loc[1, "mean_loss"], rel=1e-6)
    assert fp.Study.load(tmp_path).by_run().equals(table)

    monkeypatch.setattr("fedparity.studies.pool.COMMAND", ("false",))
    grown = fp.Study(settings, ["fedavg", "afl"], tmp_path, seeds=1).run().by_run()
    assert list(grown["state"]) == ["done", "failed"]
    assert "its process ended with exit code 1" in grown.loc[1, "reason"]


def test_a_worker_killed_in_the_middle_of_a_line_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("fedparity.studies.pool.COMMAND", ("sh", "-c", "printf '{\"stage'", "sh"))
    settings = {"data": "synthetic(clients=3)", "model": "linear", "rounds": 1, "lstar": "none"}
    table = fp.Study(settings, ["fedavg"], tmp_path, seeds=1).run().by_run()
    assert list(table["state"]) == ["failed"]


def test_a_file_may_name_no_code(tmp_path):
    file = tmp_path / "study.yaml"
    told = {**SMALL, "model": "os:getcwd", "algorithms": ["fedavg"]}
    file.write_text(json.dumps(told))
    with pytest.raises(fp.InputError, match="Python's own library"):
        fp.Study.load(file)
    file.write_text(json.dumps({**told, "model": "mypackage:net"}))
    with pytest.raises(fp.InputError, match="--allow-import mypackage"):
        fp.Study.load(file)


def test_compare_is_a_study_of_a_federation(tmp_path):
    made = fp.compare(
        unlike_clients(),
        "linear",
        ["fedavg"],
        tmp_path,
        seeds=2,
        rounds=1,
        lstar="none",
        dtype="float64",
        solver=fp.Solver(lr=0.5, steps=1),
    )
    table = made.by_run()
    assert list(table["state"]) == ["done", "done"]
    alone = fp.Experiment(
        unlike_clients(),
        "linear",
        rounds=1,
        lstar="none",
        dtype="float64",
        seed=1,
        solver=fp.Solver(lr=0.5, steps=1),
    ).run()
    assert table.loc[1, "mean_loss"] == alone.summary()["mean_loss"]
