"""The command line, called as a user calls it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
import yaml
from calls import DIGITS

import fedparity as fp
from fedparity.cli.flags import FLAGS, settings_from
from fedparity.cli.work import free, slug
from fedparity.data.recipe import Recipe
from fedparity.data.source import TableRecipe
from fedparity.learning.solver import Solver
from fedparity.records.lock import held
from fedparity.run.conditions import Conditions

SITES = (("f", "a"), ("m", "b"))


def test_a_run_shows_its_clients_and_leaves_its_directory(cli):
    done = cli(
        *("run", "--data", "digits", "--partition", "dirichlet(alpha=0.1)", "--clients", "10"),
        *("--model", "linear", "--algorithm", "eagle(lam=1)", "--rounds", "5", "--lr", "0.1"),
        *("--lstar", "best_validation(rounds=6)", "--seed", "0", "--out", "runs/eagle"),
    )
    assert done.code == 0
    assert "10 clients, 650 parameters, 5 rounds; engine vmap" in done.out
    # 1,447 training examples, each read once a round
    assert "first each client alone (L*), 10 clients, 1 step a round" in done.out
    assert "at most 6 rounds (8,682 examples)" in " ".join(done.out.split())
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
        "lstar: best_validation(rounds=3)\n"
    )
    assert cli("run", "experiment.yaml", "--out", "file").code == 0
    assert (
        cli("run", *DIGITS, "--algorithm", "qffl(q=2)", "--seed", "7", "--out", "flags").code == 0
    )
    first, second = (pd.read_parquet(f"{name}/clients.parquet") for name in ("file", "flags"))
    pd.testing.assert_frame_equal(first, second)


def test_unseen_clients_are_the_same_by_flag_and_file(cli):
    Path("experiment.yaml").write_text(
        "data: {dataset: digits, partition: shards, clients: 5}\n"
        "model: linear\nrounds: 2\nlstar: none\nunseen: [client-1, client-3]\n"
    )
    assert cli("run", "experiment.yaml", "--out", "file").code == 0
    few = ("--rounds", "2", "--lstar", "none", "--lr", "0.01", "--unseen")
    done = cli("run", *DIGITS, *few, "client-1,client-3", "--out", "flags")
    assert done.code == 0
    assert "2 clients never trained" in done.out
    for name in ("file", "flags"):
        assert list(pd.read_parquet(f"{name}/unseen.parquet")["client"]) == ["client-1", "client-3"]
        assert len(pd.read_parquet(f"{name}/clients.parquet")) == 3
    assert cli("run", *DIGITS, *few, "0.4", "--out", "drawn").code == 0
    assert len(pd.read_parquet("drawn/unseen.parquet")) == 2
    assert cli("run", *DIGITS, *few, "nobody", "--out", "wrong").code == 2


def test_a_file_of_best_losses_takes_the_place_of_training_alone(cli):
    names = [f"client-{k}" for k in range(5)]
    pd.DataFrame({"client": names, "lstar": [0.5] * 5}).to_csv("alone.csv", index=False)
    done = cli("run", *DIGITS, "--lstar", "alone.csv", "--out", "run")
    assert done.code == 0
    assert "alone (L*)," not in done.out
    assert (pd.read_parquet("run/clients.parquet")["test_lstar"] == 0.5).all()
    assert yaml.safe_load(Path("run/experiment.yaml").read_text())["lstar"]["client-0"] == 0.5
    assert cli("resume", "run", "--rounds", "4").code == 0
    assert (
        cli("compare", *DIGITS, "--lstar", "alone.csv", "--algorithms", "afl", "--out", "b").code
        == 0
    )
    Path("alone.csv").write_text("client,lstar\nclient-0,0.5\n")
    done = cli("run", *DIGITS, "--lstar", "alone.csv")
    assert done.code == 2
    assert "lstar has no number for client 'client-1', nor for 3 others" in done.err


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
    own = {f.name for f in dataclasses.fields(TableRecipe)} - {"table", "sha256"}
    assert {("data", name) for name in own} <= places
    assert {("stop", f.name) for f in dataclasses.fields(fp.Stop)} <= places


def test_every_flag_reaches_the_experiment(cli):
    done = cli(
        *("run", *DIGITS, "--out", "run", "--data-seed", "3", "--fractions", "0.6,0.2,0.2"),
        *("--noise", "symmetric(rate=0.2)", "--no-official", "--task", "classification"),
        *("--algorithm", "prox", "--steps", "2", "--batch", "8", "--momentum", "0.5"),
        *("--lots", "fixed"),
        *("--weight-decay", "0.01", "--clip", "1", "--decay", "0.9", "--optimizer", "sgd"),
        *("--cohort", "0.6", "--sampling", "size", "--weighting", "uniform", "--drop", "0.1"),
        *("--min-replies", "2", "--server-lr", "0.5", "--buffers", "local", "--seed", "2"),
        *("--engine", "loop", "--chunk", "2", "--dtype", "float64", "--evaluate-every", "2"),
        *("--checkpoint-every", "2", "--keep", "worst_accuracy", "--stop-metric", "max_gap"),
        *("--patience", "4", "--lstar", "train_plateau(rounds=2)", "--no-predictions"),
        "--no-personal",
        *("--trainable", "*", "--unseen", "1"),
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
        "lots": "fixed",
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
        "device": "cpu",
        "dtype": "float64",
        "buffers": "local",
        "evaluate_every": 2,
        "checkpoint_every": 2,
        "keep": "worst_accuracy",
        "lstar": "train_plateau(rounds=2)",
        "predictions": False,
        "personal": False,
        "trainable": "*",
        "unseen": 1,
        "pretrained": None,
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
    files = {"comparison.yaml", "checksums.json", "report.html"}
    assert folders == {"qffl-q5", "fedavg", "eagle-lam2", *files}
    assert "levelled down against fedavg" in done.out.lower()
    rows = [line.split()[0] for line in done.out.splitlines() if line.strip() and "/" not in line]
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


def test_a_comparison_and_what_goes_on_tell_trackers_too(cli):
    given = (*DIGITS, "--algorithms", "fedavg,afl", "--track", "csv")
    assert cli("compare", *given, "--out", "all").code == 0
    assert cli("resume", "all", "--rounds", "4", "--track", "csv").code == 0
    assert cli("resume", "all/afl", "--rounds", "5", "--track", "csv").code == 0
    told = {name: pd.read_csv(f"all/{name}/rounds.csv") for name in ("fedavg", "afl")}
    assert told["fedavg"]["round"].tolist() == [0, 1, 2, 3, 4]
    assert told["afl"]["round"].tolist() == [0, 1, 2, 3, 4, 5]
    wrong = cli("resume", "all", "--track", "cvs")
    assert (wrong.code, "unknown tracker 'cvs': did you mean 'csv'" in wrong.err) == (2, True)


def weightings(directory: str) -> dict[str, str]:
    """Return by what each run of a comparison really weighed its clients."""
    files = Path(directory).glob("*/experiment.yaml")
    return {
        file.parent.name: yaml.safe_load(file.read_text())["record"]["weights"] for file in files
    }


def test_a_comparison_with_a_uniform_method_is_uniform_for_all(cli):
    done = cli("compare", *DIGITS, "--algorithms", "fedavg,fedprox,eagle", "--out", "all")
    assert weightings("all") == {"fedavg": "uniform", "fedprox": "uniform", "eagle": "uniform"}
    assert "All with uniform weights" in done.out
    assert "All with uniform weights" in Path("all/report.html").read_text()
    assert yaml.safe_load(Path("all/comparison.yaml").read_text())["weighting"] == "uniform"


def test_a_comparison_whose_methods_take_any_weights_has_those_of_the_experiment(cli):
    done = cli("compare", *DIGITS, "--algorithms", "fedavg,fedprox", "--out", "all")
    assert weightings("all") == {"fedavg": "size", "fedprox": "size"}
    assert "All with weights by size" in done.out


def test_a_weighting_that_is_asked_for_is_kept_and_who_cannot_follow_is_named(cli):
    given = ("--weighting", "size", "--algorithms", "fedavg,qffl(by_size=true),qffl,local")
    done = cli("compare", *DIGITS, *given, "--out", "all")
    found = weightings("all")
    assert found == {"fedavg": "size", "qffl-by_sizetrue": "size", "qffl": "uniform"} | {
        "local": "none"
    }
    told = " ".join(done.out.split())
    assert "Not all with the same weights" in told
    assert "by size: fedavg, qffl(by_size=true); uniform: qffl." in told


def test_a_run_that_diverges_ends_with_code_1_and_leaves_its_results(cli):
    done = cli("run", *DIGITS, "--lr", "1e5", "--out", "run")
    assert done.code == 1
    assert done.err.count("fedparity: warning: 'fedavg' diverged: ") == 1
    assert "fedavg (diverged)" in done.out
    assert Path("run/clients.parquet").exists()
    assert yaml.safe_load(Path("run/experiment.yaml").read_text())["record"]["diverged"]
    again = cli("resume", "run")
    assert again.code == 1
    assert "fedavg diverged: " in again.out


def test_a_comparison_goes_on_behind_a_run_that_diverges(cli):
    given = ("--lr", "1e5", "--lstar", "none", "--algorithms", "fedavg,prox(mu=0)+uniform")
    done = cli("compare", *DIGITS, *given, "--out", "all")
    assert done.code == 1
    assert Path("all/prox-mu0-uniform/clients.parquet").exists()
    assert "Levelling down cannot be judged" in done.out
    assert "fedavg (diverged)" in Path("all/report.html").read_text()


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


def test_a_directory_in_use_is_refused_with_who_uses_it(cli):
    assert cli("compare", *DIGITS, "--algorithms", "fedavg", "--out", "all").code == 0
    more = ("--algorithms", "fedavg", "--out", "new")
    asked = [("compare", *DIGITS, *more), ("run", *DIGITS, "--out", "new"), ("resume", "all")]
    with held(Path("all"), "another one"), held(Path("new"), "another one"):
        for words in asked:
            done = cli(*words)
            assert done.code == 2
            assert f"is in use by fedparity (pid {os.getpid()} on " in done.err
            assert "another one" in done.err
            assert done.err.count("\n") == 1
    assert [cli(*words).code for words in asked[1:]] == [0, 0]


def test_ctrl_c_saves_and_tells_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "fedparity", "run", *DIGITS]
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


def test_a_run_does_not_wait_for_scipy():
    code = (
        "import sys, fedparity.run.driver, fedparity.metrics\n"
        "assert not {'scipy', 'sklearn'} & set(sys.modules), 'heavy imports'"
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


def test_metrics_are_asked_for_by_a_flag_and_shown(cli):
    done = cli("run", *DIGITS, "--lstar", "none", "--metrics", "auc,brier", "--keep", "mean_auc")
    assert done.code == 0
    assert "mean auc" in " ".join(done.out.split())
    assert "brier" in done.out
    assert yaml.safe_load(Path("runs/fedavg/experiment.yaml").read_text())["metrics"] == [
        "auc",
        "brier",
    ]
    assert cli("run", *DIGITS, "--metrics", "aoc").err.startswith(
        "fedparity: unknown metric 'aoc': did you mean 'auc'?"
    )


def test_rows_of_a_new_table_are_predicted_and_the_model_is_exported(cli):
    rows = [f"{age},{sex},{site},{int(age > 50)}" for age in range(30, 70) for sex, site in SITES]
    Path("old.csv").write_text("\n".join(["age,sex,hospital,ill", *rows]))
    Path("new.csv").write_text("sex,age\nf,35\nm,\n")
    assert (
        cli(
            *("run", "--data", "old.csv", "--client", "hospital", "--target", "ill"),
            *("--model", "linear", "--lr", "0.5", "--rounds", "20", "--lstar", "none"),
            *("--out", "run"),
        ).code
        == 0
    )
    done = cli("predict", "run", "new.csv")
    head, first, second = done.out.splitlines()
    assert head == "sex,age,prediction,probability_0,probability_1"
    assert first.startswith("f,35.0,0,0.")
    assert second.startswith("m,,")  # the gap is filled as in training
    assert cli("predict", "run", "new.csv", "--out", "new.csv").code == 2  # never over a file
    assert cli("predict", "run", "new.csv", "--out", "said.csv").code == 0
    assert Path("said.csv").read_text() == done.out
    assert cli("export", "run", "--pt2", "model.pt2").code == 0
    assert Path("model.pt2").exists()
    assert "--onnx FILE or --pt2 FILE" in cli("export", "run").err
