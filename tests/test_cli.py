"""The command line, called as a user calls it."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import yaml

import fedparity as fp
from fedparity.cli import main
from fedparity.cli.flags import FLAGS, settings_from
from fedparity.cli.work import free, slug
from fedparity.core.experiment import Conditions
from fedparity.core.solver import Solver
from fedparity.data.recipe import Recipe
from fedparity.errors import InputError

DIGITS = [
    *("--data", "digits", "--partition", "shards", "--clients", "5"),
    *("--model", "linear", "--lr", "0.1", "--rounds", "3"),
]


class Outcome(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Cli:
    """Return a function that runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")

    def call(*args: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(args)
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, *capsys.readouterr())

    return call


def test_a_run_shows_its_clients_and_leaves_its_directory(cli):
    done = cli(
        *("run", "--data", "digits", "--partition", "dirichlet(alpha=0.1)", "--clients", "10"),
        *("--model", "linear", "--algorithm", "eagle(lam=1)", "--rounds", "5", "--lr", "0.1"),
        *("--seed", "0", "--out", "runs/eagle"),
    )
    assert done.code == 0
    assert "10 clients, 650 parameters, 5 rounds; engine vmap" in done.out
    assert "client-9" in done.out
    assert "eagle(lam=1)" in done.out
    files = {file.name for file in Path("runs/eagle").iterdir()}
    assert {
        *("experiment.yaml", "history.parquet", "clients.parquet", "model.safetensors"),
        *("checkpoint", "log.jsonl", "report.html"),
    } <= files


def test_a_directory_is_found_where_none_is_named(cli):
    assert cli("run", *DIGITS, "--algorithm", "qffl(q=2)").code == 0
    assert cli("run", *DIGITS, "--algorithm", "qffl(q=2)").code == 0
    assert {path.name for path in Path("runs").iterdir()} == {"qffl-q2", "qffl-q2-2"}


def test_flags_and_file_give_the_same_run(cli):
    Path("experiment.yaml").write_text(
        "data: {dataset: digits, partition: shards, clients: 5}\n"
        "model: linear\nalgorithm: qffl(q=2)\nrounds: 3\nsolver: {lr: 1e-1}\nseed: 7\n"
    )
    assert cli("run", "experiment.yaml", "--out", "file").code == 0
    assert (
        cli("run", *DIGITS, "--algorithm", "qffl(q=2)", "--seed", "7", "--out", "flags").code == 0
    )
    first, second = (pd.read_parquet(f"{name}/clients.parquet") for name in ("file", "flags"))
    pd.testing.assert_frame_equal(first, second)


def test_flags_override_the_file(cli):
    Path("experiment.yaml").write_text(
        "data: digits\nmodel: linear\nsolver: {lr: 0.1, epochs: 2, batch: 5}\nrounds: 30\n"
    )
    settings = settings_from(
        Path("experiment.yaml"),
        {"partition": "iid", "clients": 4, "steps": 1, "batch": "full", "rounds": 2},
    )
    assert settings == {
        "data": {"dataset": "digits", "partition": "iid", "clients": 4},
        "model": "linear",
        "solver": {"lr": 0.1, "steps": 1, "batch": None},
        "rounds": 2,
    }


def test_a_run_can_be_repeated_from_its_directory(cli):
    assert cli("run", *DIGITS, "--algorithm", "afl", "--out", "one").code == 0
    assert cli("run", "one", "--out", "two").code == 0
    first, second = (yaml.safe_load(Path(d, "experiment.yaml").read_text()) for d in ("one", "two"))
    assert {k: v for k, v in first.items() if k != "record"} == {
        k: v for k, v in second.items() if k != "record"
    }


def test_everything_that_can_be_set_has_a_flag():
    places = {flag.place for flag in FLAGS}
    assert {(f.name,) for f in dataclasses.fields(Conditions)} <= places
    assert {("solver", f.name) for f in dataclasses.fields(Solver)} <= places
    assert {("data", f.name) for f in dataclasses.fields(Recipe)} <= places
    assert {("stop", f.name) for f in dataclasses.fields(fp.Stop)} <= places


def test_every_flag_reaches_the_experiment(cli):
    done = cli(
        *("run", *DIGITS, "--out", "run", "--data-seed", "3", "--fractions", "0.6,0.2,0.2"),
        *("--noise", "symmetric(rate=0.2)", "--no-official", "--task", "classification"),
        *("--algorithm", "prox", "--steps", "2", "--batch", "8", "--momentum", "0.5"),
        *("--weight-decay", "0.01", "--clip", "1", "--decay", "0.9", "--optimizer", "sgd"),
        *("--cohort", "0.6", "--sampling", "size", "--weighting", "uniform", "--drop", "0.1"),
        *("--min-replies", "2", "--server-lr", "0.5", "--buffers", "local", "--seed", "2"),
        *("--engine", "loop", "--chunk", "2", "--dtype", "float64", "--evaluate-every", "2"),
        *("--checkpoint-every", "2", "--keep", "worst_accuracy", "--stop-metric", "max_gap"),
        *("--patience", "4", "--lstar", "train_plateau"),
    )
    assert done.code == 0, done.err
    found = yaml.safe_load(Path("run/experiment.yaml").read_text())
    assert found["data"] == {
        "dataset": "digits",
        "partition": "shards(per_client=2)",
        "clients": 5,
        "seed": 3,
        "fractions": [0.6, 0.2, 0.2],
        "official": False,
        "noise": [{"noise": "symmetric(rate=0.2)", "seed": 3, "clients": None}],
    }
    assert found["solver"] == {
        "lr": 0.1,
        "steps": 2,
        "epochs": None,
        "batch": 8,
        "momentum": 0.5,
        "weight_decay": 0.01,
        "clip": 1.0,
        "decay": 0.9,
        "optimizer": "sgd",
    }
    assert found["stop"] == {"metric": "max_gap", "patience": 4}
    conditions = {f.name: found[f.name] for f in dataclasses.fields(Conditions)}
    assert conditions == {
        "rounds": 3,
        "cohort": 0.6,
        "sampling": "size",
        "weighting": "uniform",
        "drop": 0.1,
        "min_replies": 2,
        "server_lr": 0.5,
        "seed": 2,
        "engine": "loop",
        "chunk": 2,
        "dtype": "float64",
        "buffers": "local",
        "evaluate_every": 2,
        "checkpoint_every": 2,
        "keep": "worst_accuracy",
        "lstar": "train_plateau",
    }


def test_the_partition_has_the_seed_of_the_run_unless_it_has_its_own(cli):
    assert cli("run", *DIGITS, "--seed", "4", "--out", "run").code == 0
    assert yaml.safe_load(Path("run/experiment.yaml").read_text())["data"]["seed"] == 4


def test_a_model_of_ones_own_is_found_in_the_current_directory(cli):
    Path("own_nets_of_a_test.py").write_text(
        "from torch import nn\n\n"
        "def small(shape, outputs, hidden=4):\n"
        "    first, second = nn.Linear(64, hidden), nn.Linear(hidden, outputs)\n"
        "    return nn.Sequential(nn.Flatten(), first, second)\n"
    )
    done = cli("run", *DIGITS, "--model", "own_nets_of_a_test:small(hidden=2)", "--out", "run")
    assert done.code == 0, done.err
    assert "5 clients, 160 parameters" in done.out  # 64 * 2 + 2 + 2 * 10 + 10


def test_a_comparison_shows_all_algorithms_and_takes_fedavg_as_baseline(cli):
    done = cli("compare", *DIGITS, "--algorithms", "qffl(q=5),fedavg,eagle(lam=2)", "--out", "all")
    assert done.code == 0, done.err
    folders = {path.name for path in Path("all").iterdir()}
    assert folders == {"qffl-q5", "fedavg", "eagle-lam2", "comparison.yaml", "report.html"}
    assert "levelled down against fedavg" in done.out.lower()
    rows = [line.split()[0] for line in done.out.splitlines() if "%" in line and "/" not in line]
    assert {"qffl(q=5)", "fedavg", "eagle(lam=2)"} <= set(rows)


def test_without_fedavg_the_first_algorithm_is_the_baseline(cli):
    done = cli("compare", *DIGITS, "--algorithms", "afl,qffl(q=5)", "--out", "all")
    assert "levelled down against afl" in done.out.lower()


def test_algorithms_are_compared_on_the_same_federation(cli):
    assert cli("compare", *DIGITS, "--algorithms", "fedavg,afl", "--out", "all").code == 0
    records = [
        yaml.safe_load(Path("all", name, "experiment.yaml").read_text())["record"]
        for name in ("fedavg", "afl")
    ]
    assert records[0]["federation"] == records[1]["federation"]


def test_a_run_goes_further(cli):
    assert cli("run", *DIGITS, "--algorithm", "afl", "--out", "short").code == 0
    assert cli("resume", "short", "--rounds", "6").code == 0
    assert cli("run", *DIGITS, "--rounds", "6", "--algorithm", "afl", "--out", "long").code == 0
    short, long = (pd.read_parquet(f"{name}/clients.parquet") for name in ("short", "long"))
    pd.testing.assert_series_equal(short["test_loss"], long["test_loss"], check_exact=True)
    assert yaml.safe_load(Path("short/experiment.yaml").read_text())["rounds"] == 6


def test_a_finished_run_is_shown_again(cli):
    first = cli("run", *DIGITS, "--algorithm", "qffl(q=2)", "--out", "run")
    again = cli("resume", "run")
    assert again.code == 0
    assert again.out.startswith("run is finished; --rounds goes further.")
    table = first.out.partition("\n\n")[2]
    assert again.out.endswith(table)


def test_fewer_rounds_than_done_are_refused(cli):
    assert cli("run", *DIGITS, "--out", "run").code == 0
    done = cli("resume", "run", "--rounds", "1")
    assert done.code == 2
    assert "has done 3 rounds already" in done.err


def test_a_comparison_goes_on_where_it_was_left(cli):
    assert cli("compare", *DIGITS, "--algorithms", "fedavg,afl", "--out", "all").code == 0
    kept = Path("all/fedavg/clients.parquet").stat().st_mtime_ns
    before = pd.read_parquet("all/afl/clients.parquet")
    shutil.rmtree("all/afl")
    done = cli("resume", "all")
    assert done.code == 0, done.err
    assert Path("all/fedavg/clients.parquet").stat().st_mtime_ns == kept
    pd.testing.assert_frame_equal(pd.read_parquet("all/afl/clients.parquet"), before)


WRONG = [
    (["rnu"], "unknown command 'rnu': did you mean 'run'"),
    (["run"], "names no data"),
    (["run", "--rouns", "3"], "no such option '--rouns': did you mean '--rounds'"),
    (["run", *DIGITS, "--data", "digit"], "unknown dataset 'digit': did you mean 'digits'"),
    (["run", "--data", "digits", "--model", "linear"], "name a partition, such as"),
    (["run", *DIGITS, "--partition", "dirichlet"], "dirichlet: alpha must be given"),
    (["run", *DIGITS, "--partition", "dirichlet(alpha=-1)"], "alpha should be greater than 0"),
    (["run", *DIGITS, "--clients", "-5"], "data: clients should be greater than or equal to 1"),
    (["run", *DIGITS, "--fractions", "0.5,0.5"], "--fractions expects 0.8,0.1,0.1"),
    (["run", *DIGITS, "--noise", "symetric"], "unknown label noise 'symetric': did you mean"),
    (["run", *DIGITS, "--model", "linaer"], "unknown model 'linaer': did you mean 'linear'"),
    (["run", *DIGITS, "--model", "absent.nets:small"], "No module named 'absent'"),
    (["run", *DIGITS, "--task", "classify"], "did you mean 'classification'"),
    (["run", *DIGITS, "--algorithm", "egale"], "did you mean 'eagle'"),
    (["run", *DIGITS, "--algorithm", "eagle(lambda=1)"], "did you mean 'lam'"),
    (["run", *DIGITS, "--algorithm", "eagle(lam=-1)"], "should be greater than or equal to 0"),
    (["run", *DIGITS, "--algorithm", "eagle(lam=1"], "expected name(setting=value)"),
    (["run", *DIGITS, "--algorithm", "eagle+afl"], "'eagle+afl' does not compose"),
    (["run", *DIGITS, "--lr", "-1"], "solver: lr should be greater than 0, got -1.0"),
    (["run", *DIGITS, "--lr", "abc"], "invalid value for '--lr'"),
    (["run", *DIGITS, "--rounds", "0"], "rounds should be greater than or equal to 1, got 0"),
    (["run", *DIGITS, "--batch", "some"], "--batch expects int|full, got 'some'"),
    (["run", *DIGITS, "--steps", "2", "--epochs", "2"], "solver: takes steps or epochs, not both"),
    (["run", *DIGITS, "--cohort", "100"], "a whole number up to 5"),
    (["run", *DIGITS, "--keep", "worst_acuracy"], "did you mean 'worst_accuracy'"),
    (["run", *DIGITS, "--engine", "gpu"], "engine should be 'auto', 'loop' or 'vmap', got 'gpu'"),
    (["run", *DIGITS, "--data", "mnist", "--data-dir", "nowhere"], "in nowhere"),
    (["run", "absent.yaml"], "cannot read absent.yaml: No such file"),
    (["compare", *DIGITS], "name the algorithms to compare"),
    (["compare", *DIGITS, "--algorithms", "fedavg,fedavg"], "'fedavg' stands twice"),
    (["compare", *DIGITS, "--algorithms", "fedavg,nope"], "unknown algorithm 'nope'"),
    (["resume", "absent"], "absent holds no run"),
    (["resume"], "missing argument"),
    (["list", "algorithm"], "did you mean 'algorithms'"),
    (["explain", "egale"], "did you mean 'eagle'"),
]


@pytest.mark.parametrize(("args", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
def test_a_mistake_is_one_line_and_leaves_nothing(cli, args, told):
    done = cli(*args)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert done.err.startswith("fedparity: ")
    assert told in done.err
    assert done.out == ""
    assert list(Path().iterdir()) == []


BAD_FILES = [
    ("data: digits\n  model: linear", "is not valid YAML"),
    ("hello", "holds no settings"),
    ("dataset: digits", "unknown setting 'dataset': did you mean 'data'"),
    ("data: {dataset: digits, client: 5}\nmodel: linear", "did you mean 'clients'"),
    ("data: [1]\nmodel: linear", "'data' must be a table"),
    ("data: digits\nmodel: linear\nevaluate-every: 3", "did you mean 'evaluate_every'"),
]


@pytest.mark.parametrize(("text", "told"), BAD_FILES)
def test_a_mistake_in_a_file_is_one_line(cli, text, told):
    Path("bad.yaml").write_text(text)
    done = cli("run", "bad.yaml")
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_directory_with_a_run_is_not_overwritten(cli):
    assert cli("run", *DIGITS, "--out", "run").code == 0
    before = Path("run/clients.parquet").read_bytes()
    done = cli("run", *DIGITS, "--algorithm", "afl", "--out", "run")
    assert done.code == 2
    assert "resume it with 'fedparity resume run'" in done.err
    assert Path("run/clients.parquet").read_bytes() == before


def test_a_run_that_fails_ends_with_one(cli):
    absent = ["--drop", "0.99", "--min-replies", "5", "--rounds", "30"]
    done = cli("run", *DIGITS, *absent, "--out", "run")
    assert done.code == 1
    assert "20 rounds in a row without enough replies" in done.err
    assert done.err.count("\n") == 1


def test_an_unforeseen_exception_keeps_its_traceback(cli, monkeypatch):
    def broken(*args: object) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr(fp.Experiment, "run", broken)
    with pytest.raises(ZeroDivisionError, match="unforeseen"):
        main(["run", *DIGITS])


def test_each_warning_is_shown_once_in_a_line(cli):
    done = cli("run", *DIGITS, "--rounds", "20", "--algorithm", "eagle(lam=50)", "--out", "run")
    assert done.code == 0
    told = [line for line in done.err.splitlines() if "negative weight" in line]
    assert len(told) == 1
    assert told[0].startswith("fedparity: warning: eagle: ")


def test_ctrl_c_saves_and_tells_how_to_go_on(tmp_path):
    command = [sys.executable, "-c", "from fedparity.cli import main; main()", "run", *DIGITS]
    command += ["--rounds", "1000000", "--lstar", "none", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait_for(tmp_path / "run" / "log.jsonl", process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert last.startswith("fedparity: stopped after round ")
    assert last.endswith(": fedparity resume run")
    assert (tmp_path / "run" / "checkpoint" / "state.json").exists()


def _wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            raise AssertionError("the run ended before its first round")


def test_lists_and_explanations_are_printed(cli):
    assert "eagle" in cli("list", "algorithms").out
    assert cli("list", "metrics", "--markdown").out.startswith("| name | definition | better |")
    assert "Exchanges a round: 1 (train)" in cli("explain", "eagle+prox(mu=0.1)").out
    assert "with d = 650: 650" in cli("explain", "fedavg", "--parameters", "650").out


def test_help_and_version_answer(cli):
    assert "compare" in cli().out
    assert "--evaluate-every" in cli("run", "--help").out
    assert cli("--version").out.startswith("fedparity ")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, fedparity, fedparity.cli\n"
        "assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules), 'heavy imports'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_are_there():
    for name in fp.__all__:
        assert getattr(fp, name) is not None
    assert dir(fp) == fp.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Experimnt'"):
        fp.Experimnt  # noqa: B018


def test_directories_are_named_after_algorithms():
    assert slug("eagle(lam=0.5)+prox(mu=0.1)") == "eagle-lam0.5-prox-mu0.1"
    assert slug("../..") == "run"


def test_a_free_directory_is_numbered(tmp_path):
    assert free(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert free(tmp_path / "a") == tmp_path / "a-3"


def test_a_file_whose_tables_are_not_tables_is_refused(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("solver: 3")
    with pytest.raises(InputError, match="'solver' must be a table"):
        settings_from(file, {"lr": 0.1})
