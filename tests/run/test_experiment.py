"""Conditions of a run: cohorts, drop-out, evaluation, early stop, which model is kept."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.errors import FedparityError, InputError
from fedparity.run.driver import MOST_EMPTY, Run
from fedparity.run.experiment import Experiment
from fedparity.run.rounds import AHEAD
from fedparity.testing import unlike_clients

STEP = fp.Solver(lr=0.1, steps=1)


def experiment(federation, algorithm="fedavg", **more) -> Experiment:
    known = {"rounds": 4, "solver": STEP, "lstar": "none", "dtype": "float64", **more}
    return Experiment(federation, "linear", algorithm, **known)


def parameters(result: fp.Result) -> torch.Tensor:
    return nn.utils.parameters_to_vector(result.model().parameters()).detach()


def log(result: fp.Result) -> list[dict]:
    assert result.path is not None
    lines = (result.path / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_without_a_cohort_everyone_is_asked(unlike):
    assert experiment(unlike).sample(3).tolist() == [0, 1, 2, 3]


def test_a_cohort_is_ascending_without_repetition_and_its_own_each_round():
    many = experiment(unlike_clients((5,) * 30), cohort=10)
    drawn = [many.sample(t) for t in range(1, 6)]
    assert all(len(c) == 10 and (np.diff(c) > 0).all() for c in drawn)
    assert all(a.tolist() != b.tolist() for a, b in pairwise(drawn))
    assert many.sample(1).tolist() == drawn[0].tolist()


@pytest.mark.parametrize("ahead", [1, 3, AHEAD])
def test_a_run_that_draws_ahead_has_the_cohorts_of_the_experiment(ahead):
    many = experiment(unlike_clients((5,) * 30), cohort=10, rounds=5)
    run = Run(many)
    run.ahead = ahead
    for t in (1, 2, 3, 4, 5, 6, 2):  # past the end, and back as a resume may go
        assert run._cohort(t).tolist() == many.sample(t).tolist()
        assert len(run.drawn) < ahead


def test_uniform_sampling_draws_clients_equally_often(unlike):
    two = experiment(unlike, cohort=2)
    counts = np.bincount(np.concatenate([two.sample(t) for t in range(2000)]), minlength=4)
    # 1000 each, standard deviation sqrt(2000 / 4) = 22: five of them
    assert np.abs(counts - 1000).max() < 112


def test_sampling_by_size_draws_one_client_in_proportion_to_its_examples(unlike):
    one = experiment(unlike, cohort=1, sampling="size")
    counts = np.bincount(np.concatenate([one.sample(t) for t in range(4000)]), minlength=4)
    # 9, 4, 1 and 6 of 20 examples; standard deviations below 32
    assert np.abs(counts - 4000 * np.asarray([9, 4, 1, 6]) / 20).max() < 160


def test_the_weighting_that_pairs_with_the_sampling_is_the_default(unlike):
    assert experiment(unlike).by_size
    assert not experiment(unlike, sampling="size", cohort=2).by_size
    assert experiment(unlike, sampling="size", cohort=2, weighting="size").by_size
    assert not experiment(unlike, weighting="uniform").by_size


@pytest.mark.parametrize(("cohort", "size"), [(None, 4), (3, 3), (0.5, 2), (0.01, 1), (2.0, 2)])
def test_a_cohort_is_a_number_or_a_share(unlike, cohort, size):
    assert experiment(unlike, cohort=cohort).cohort_size == size


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cohort": 5}, "up to 4"),
        ({"cohort": 2.5}, "up to 4"),
        ({"cohort": 0}, "greater than 0"),
        ({"drop": 1.0}, "less than 1"),
        ({"rounds": 0}, "greater than or equal to 1"),
        ({"min_replies": 3, "cohort": 2}, "only 2 clients are asked"),
        ({"server_lr": float("inf")}, "finite"),
        ({"sampling": "sizes"}, "did you mean 'size'"),
        ({"engine": "warp"}, "'auto', 'loop', 'vmap' or 'flower'"),
        ({"keep": "worst_acuracy"}, "did you mean 'worst_accuracy'"),
        ({"keep": "clients"}, "only counted"),
        ({"keep": "gap_variance"}, "needs L"),
        ({"stop": fp.Stop(metric="mean_los")}, "did you mean 'mean_loss'"),
        ({"algorithm": "eagle"}, "needs L"),
        ({"lstar": "best_validaton"}, "did you mean 'best_validation'"),
    ],
)
def test_wrong_conditions_are_refused_in_one_line(unlike, wrong, said):
    with pytest.raises(InputError, match=said) as found:
        experiment(unlike, **wrong)
    assert "\n" not in str(found.value)


def test_an_accuracy_is_not_watched_where_there_is_none():
    x = np.arange(20.0)[:, None]
    values = fp.Federation.from_arrays(x, x[:, 0] * 0.5, np.arange(20) % 2, kind="values")
    with pytest.raises(InputError, match="accuracies"):
        experiment(values, keep="worst_accuracy")


def test_a_model_that_does_not_fit_is_refused_before_the_first_round(unlike):
    with pytest.raises(InputError, match=r"does not fit inputs of shape \(3,\)"):
        Experiment(unlike, lambda: nn.Linear(7, 3), rounds=1)


@pytest.mark.parametrize(
    "alike",
    [
        {"seed": np.int64(3), "rounds": np.int32(2)},
        {"seed": "3", "rounds": 2.0},
        {"seed": 3, "rounds": "2", "server_lr": "1", "cohort": np.float64(0.5), "drop": "0"},
    ],
)
def test_numbers_of_other_types_are_the_numbers_they_stand_for(unlike, tmp_path, alike):
    known = {"seed": 3, "rounds": 2, "cohort": alike.get("cohort")}
    made = experiment(unlike, **{**known, **alike})
    result = made.run(out=tmp_path / "run")
    assert torch.equal(parameters(result), parameters(experiment(unlike, **known).run()))
    assert fp.Result.load(tmp_path / "run").settings["seed"] == 3
    made.resume(tmp_path / "run")


def test_running_an_experiment_twice_gives_the_same_bits(unlike):
    again = experiment(unlike, "momentum", solver=fp.Solver(lr=0.1, steps=2, batch=3))
    first = again.run()
    x = parameters(first)
    second = again.run()
    assert torch.equal(parameters(second), x)
    assert torch.equal(parameters(first), x)
    pd.testing.assert_frame_equal(first.clients, second.clients)
    pd.testing.assert_frame_equal(first.history, second.history)


def test_another_seed_gives_other_numbers(unlike):
    zero, one = (parameters(experiment(unlike, seed=seed).run()) for seed in (0, 1))
    assert not torch.equal(zero, one)


def test_clients_drop_out_with_the_given_probability(unlike, tmp_path):
    result = experiment(unlike, drop=0.3, rounds=200, evaluate_every=200).run(out=tmp_path / "run")
    rounds = log(result)
    assert all(r["asked"] == 4 and r["asked"] - r["answered"] == len(r["failed"]) for r in rounds)
    assert {why for r in rounds for why in r["failed"].values()} == {"dropped out"}
    # 240 of 800 expected, standard deviation 13: five of them
    assert sum(len(r["failed"]) for r in rounds) == pytest.approx(240, abs=65)


@pytest.mark.parametrize("algorithm", ["fedavg", "eagle(weights=fresh)"])
def test_attendance_counts_a_round_however_many_exchanges_it_has(unlike, tmp_path, algorithm):
    known = {"drop": 0.5, "rounds": 6, "lstar": "best_validation(rounds=1)"}
    first, *rounds = log(experiment(unlike, algorithm, **known).run(out=tmp_path / "run"))
    assert first["lstar"] == "best_validation(rounds=1)"
    assert all(r["asked"] == 4 for r in rounds)
    assert all(r["answered"] + len(r["failed"]) == 4 for r in rounds)
    assert any(r["failed"] for r in rounds)


def test_a_round_with_too_few_replies_changes_nothing_and_is_recorded(unlike, tmp_path):
    result = experiment(unlike, drop=0.4, min_replies=3, rounds=12, evaluate_every=1).run(
        out=tmp_path / "run"
    )
    rounds = log(result)
    empty = [r["round"] for r in rounds if r.get("skipped")]
    assert empty
    assert len(empty) < 12
    assert all((r["answered"] < 3) == r.get("skipped", False) for r in rounds)
    assert all(r["answered"] + len(r["failed"]) == 4 for r in rounds)
    loss = result.history.query("metric == 'loss' and split == 'test' and client == '0'")
    by_round = loss.set_index("round")["value"]
    for t in range(1, 13):
        assert (by_round[t] == by_round[t - 1]) == (t in empty)


def test_a_run_gives_up_after_too_many_empty_rounds(unlike):
    with pytest.raises(FedparityError, match=f"{MOST_EMPTY} rounds in a row"):
        experiment(unlike, drop=0.99, min_replies=4, rounds=100).run()


def test_the_first_the_last_and_every_nth_round_are_evaluated(unlike):
    history = experiment(unlike, rounds=7, evaluate_every=3).run().history
    on_test = history.query("split == 'test'")
    assert sorted(on_test["round"].unique()) == [0, 3, 6, 7]
    assert set(history.query("split == 'train'")["round"]) == {7}


def test_a_run_is_evaluated_about_twenty_times_by_default(unlike):
    assert experiment(unlike, rounds=200).evaluation_interval == 10
    assert experiment(unlike, rounds=5).evaluation_interval == 1


def test_every_client_with_examples_is_in_the_history(unlike):
    history = experiment(unlike, rounds=2, cohort=1, evaluate_every=1).run().history
    assert list(history.columns) == ["round", "client", "split", "model", "metric", "value", "n"]
    first = history.query("round == 0 and split == 'test' and metric == 'accuracy'")
    # The third client has no test example.
    assert first["client"].tolist() == ["0", "1", "3"]
    assert first["n"].tolist() == [3, 3, 3]


def test_the_table_of_clients_has_the_promised_columns(unlike):
    clients = experiment(unlike, lstar="best_validation(rounds=2)").run().clients
    assert list(clients.columns) == [
        *("client", "n_train", "n_validation", "n_test"),
        *("train_loss", "validation_loss", "test_loss"),
        *("validation_accuracy", "test_accuracy"),
        *("validation_lstar", "test_lstar", "validation_gap", "test_gap"),
        *("validation_base_accuracy", "test_base_accuracy"),
        *("validation_alone_accuracy", "test_alone_accuracy"),
        *("lstar_rounds", "lstar_capped"),
        "rounds_answered",
    ]
    assert clients["n_train"].tolist() == [9, 4, 1, 6]
    missing = clients.loc[clients["n_test"] == 0, ["test_loss", "test_accuracy", "test_gap"]]
    assert missing.isna().all(axis=None)
    gap = clients["test_loss"] - clients["test_lstar"]
    pd.testing.assert_series_equal(gap, clients["test_gap"], check_names=False)


def overshooting(unlike, **more) -> fp.Result:
    """A run whose validation gets worse after a while: the step is far too long."""
    solver = fp.Solver(lr=30.0, steps=1)
    return experiment(unlike, solver=solver, rounds=30, evaluate_every=1, **more).run()


def watched(result: fp.Result, metric: str) -> pd.Series:
    rows = result.history.query("split == 'validation' and metric == @metric")
    return rows.groupby("round")["value"].agg("mean" if metric == "loss" else "min")


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_the_kept_model_is_the_best_by_the_named_metric(unlike):
    last = overshooting(unlike)
    loss = watched(last, "loss")
    best = overshooting(unlike, keep="mean_loss")
    assert best.summary("validation")["mean_loss"] == pytest.approx(loss.min(), rel=1e-12)
    assert best.settings["record"]["kept_round"] == loss.idxmin()
    assert loss.min() < last.summary("validation")["mean_loss"]


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_the_kept_model_can_be_the_best_for_the_worst_client(unlike):
    worst = watched(overshooting(unlike), "accuracy")
    best = overshooting(unlike, keep="worst_accuracy")
    assert best.summary("validation")["worst_accuracy"] == pytest.approx(100 * worst.max())
    assert best.settings["record"]["kept_round"] == worst.idxmax()


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_run_stops_when_the_watched_metric_no_longer_improves(unlike):
    loss = watched(overshooting(unlike), "loss")
    stopped = overshooting(unlike, stop=fp.Stop(metric="mean_loss", patience=3))
    best = np.minimum.accumulate(loss.to_numpy())
    improved = np.flatnonzero(np.diff(best, prepend=np.inf) < 0)
    # Three evaluations after the last improvement that is not followed by another within three.
    wanted = next(t + 3 for t, after in pairwise([*improved, 10**9]) if after > t + 3)
    assert stopped.rounds == wanted
    assert stopped.rounds < 30


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_stopping_and_keeping_each_watch_their_own_metric(unlike):
    stop = fp.Stop(metric="mean_loss", patience=3)
    alone = overshooting(unlike, stop=stop)
    both = overshooting(unlike, stop=stop, keep="worst_accuracy")
    assert both.rounds == alone.rounds
    worst = watched(overshooting(unlike), "accuracy")[: alone.rounds + 1]
    assert both.settings["record"]["kept_round"] == worst.idxmax()


def test_a_personal_algorithm_reports_the_model_each_client_would_use(unlike):
    result = experiment(unlike, "local", rounds=3, evaluate_every=1).run()
    assert set(result.history["model"]) == {"global", "personal"}
    rows = result.history.query("round == 3 and split == 'test' and metric == 'loss'")
    personal = rows.query("model == 'personal'")["value"].to_numpy()
    shared = rows.query("model == 'global'")["value"].to_numpy()
    assert (personal != shared).all()
    reported = result.clients["test_loss"].dropna().to_numpy()
    np.testing.assert_allclose(reported, personal, rtol=1e-12)


def test_a_client_with_one_example_trains():
    lonely = unlike_clients((1, 5))
    result = experiment(lonely, "local", solver=fp.Solver(lr=0.5, epochs=2, batch=32)).run()
    loss = result.clients["train_loss"][0]
    before = experiment(lonely, "local", rounds=1, solver=fp.Solver(lr=1e-12)).run()
    assert loss < before.clients["train_loss"][0]


def test_a_client_without_examples_is_refused_by_name():
    with pytest.raises(InputError, match="client 'Basel' has no training example"):
        fp.Federation.from_arrays(
            np.zeros((3, 2)), [0, 1, 0], ["Zug", "Zug", "Basel"], ["train", "train", "test"]
        )


def test_parameters_and_data_have_the_type_of_the_experiment(unlike):
    for dtype in ("float32", "float64"):
        model = experiment(unlike, dtype=dtype).run().model()
        assert {p.dtype for p in model.parameters()} == {getattr(torch, dtype)}


def test_an_experiment_describes_itself_completely(unlike):
    told = experiment(unlike, "eagle(lam=2)", lstar="best_validation", cohort=0.5).describe()
    assert told["algorithm"].startswith("eagle(lam=2.0, v_min=0.0, apply='displacement'")
    assert told["engine"] in ("loop", "vmap")
    assert told["cohort"] == 0.5
    assert told["record"]["written_as"] == "eagle(lam=2)"
    assert told["record"]["federation"] == unlike.fingerprint


@pytest.mark.parametrize("name", ["fedfa", "feddisco", "fedwavg"])
def test_what_goes_by_classes_is_refused_where_values_are_predicted(name):
    x = np.linspace(-1, 1, 120).reshape(40, 3)
    made = fp.Federation.from_arrays(x, x.sum(1), np.arange(40) // 10)
    with pytest.raises(InputError, match=f"'{name}' goes by classes .* 'regression' has none"):
        fp.Experiment(made, fp.Regression("linear"), name, rounds=1, lstar="none")
