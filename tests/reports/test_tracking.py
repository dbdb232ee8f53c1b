"""Trackers are told of every round; each is tested with the library it is named after."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest

import fedparity as fp
from fedparity.reports.tracking import CSV, MLflow, TensorBoard, WandB
from fedparity.testing import unlike_clients


def run(track, out=None, rounds=3) -> fp.Result:
    made = fp.Experiment(
        unlike_clients(), "linear", rounds=rounds, evaluate_every=2, lstar="none", drop=0.0
    )
    return made.run(out=out, track=track)


def test_a_function_is_given_a_dict_a_round():
    told: list[dict[str, float]] = []
    result = run(told.append)
    assert [each["round"] for each in told] == [0, 1, 2, 3]
    assert "test/loss/mean" not in told[1]
    assert told[2]["asked"] == told[2]["answered"] == 4
    last = told[3]
    assert last["test/loss/mean"] == pytest.approx(result.clients["test_loss"].mean())
    assert last["test/loss/worst"] == pytest.approx(result.clients["test_loss"].max())
    assert last["test/accuracy/worst"] == pytest.approx(result.clients["test_accuracy"].min())
    of_clients = [name for name in last if name.startswith("test/loss/client/")]
    assert len(of_clients) == result.clients["test_loss"].notna().sum()


def spread(target: np.ndarray, output: np.ndarray) -> float:
    """The largest probability that an example is given."""
    return float(output.max())


def test_the_worst_client_has_the_largest_number_where_less_is_better():
    told: list[dict[str, float]] = []
    own = fp.Metric(spread, better="lower")
    made = fp.Experiment(
        unlike_clients(),
        "linear",
        rounds=1,
        lstar="none",
        metrics=["brier", "balanced_accuracy", own],
    )
    clients = made.run(track=told.append).clients
    for name, worst in {"brier": "max", "balanced_accuracy": "min", "spread": "max"}.items():
        assert told[-1][f"test/{name}/worst"] == pytest.approx(clients[f"test_{name}"].agg(worst))


def test_a_row_a_round_is_written_and_the_log_has_losses(tmp_path):
    run("csv", tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "rounds.csv")
    assert table["round"].tolist() == [0, 1, 2, 3]
    assert table["test/loss/mean"].isna().tolist() == [False, True, False, False]
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert log[1]["evaluated"]["test/loss/mean"] == pytest.approx(table["test/loss/mean"][2])
    assert "evaluated" not in log[0]


def test_a_run_that_goes_on_keeps_the_rows_of_the_rounds_before(tmp_path):
    run("csv", tmp_path / "run")
    made = fp.Experiment(unlike_clients(), "linear", rounds=5, evaluate_every=2, lstar="none")
    made.resume(tmp_path / "run", track="csv")
    table = pd.read_csv(tmp_path / "run" / "rounds.csv")
    assert table["round"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["test/loss/mean"].notna().tolist() == [True, False, True, True, True, True]


def test_a_file_that_is_no_table_of_rounds_is_not_written_over(tmp_path):
    (tmp_path / "mine.csv").write_text("name,age\nAda,36\n")
    with pytest.raises(fp.InputError, match="is no table of rounds"):
        run(CSV(tmp_path / "mine.csv"))
    assert "Ada" in (tmp_path / "mine.csv").read_text()


def test_pythons_logger_is_told_too(caplog):
    with caplog.at_level(logging.INFO, logger="fedparity"):
        run((), rounds=2)
    assert caplog.messages[0] == "round 1: 4 of 4 clients answered"
    assert caplog.messages[1].startswith("round 2: 4 of 4 clients answered, accuracy")


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_scalars(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(TensorBoard(tmp_path / "board"))
    found = EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    assert [event.step for event in found.Scalars("test/loss/mean")] == [0, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_run_in_its_database(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run(MLflow(uri))
    client = mlflow.MlflowClient(uri)
    where = client.get_experiment_by_name("fedparity").experiment_id
    (found,) = client.search_runs([where])
    assert found.info.status == "FINISHED"
    assert found.data.params["solver.lr"] == "0.1"
    history = client.get_metric_history(found.info.run_id, "test/loss/mean")
    assert sorted(metric.step for metric in history) == [0, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_is_told_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    run(WandB())
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"test/loss/mean" in file.read_bytes()


def test_a_tracker_that_is_unknown_or_has_no_place_is_told_at_once():
    with pytest.raises(fp.InputError, match="unknown tracker 'tensorbord': did you mean"):
        run("tensorbord")
    with pytest.raises(fp.InputError, match="give out="):
        run("csv")
