"""L*: the best loss a client reaches alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from torch import nn

import fedparity as fp
from fedparity.records.rundir import RunDir
from fedparity.run import lstar, lstar_cache
from fedparity.run.experiment import Experiment
from fedparity.run.lstar_rules import BestValidation, TrainPlateau
from fedparity.testing import unlike_clients

STEP = fp.Solver(lr=0.5, steps=1)


def setup(federation, model="linear", solver=STEP, **more):
    return Experiment(federation, model, solver=solver, dtype="float64", lstar="none", **more).setup


def alone(federation, rounds: int, solver: fp.Solver = STEP) -> pd.DataFrame:
    """Losses of each client's own model by round: full batches, so no seed is involved."""
    made = Experiment(
        federation,
        "linear",
        "local",
        rounds=rounds,
        solver=solver,
        dtype="float64",
        lstar="none",
        evaluate_every=1,
    )
    history = made.run().history
    return history.query("model == 'personal' and metric == 'loss'")


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_best_validation_loss_along_the_way_is_taken(unlike, engine):
    path = alone(unlike, 30)
    found = lstar.estimate(setup(unlike), BestValidation(rounds=30, patience=30), engine)
    for k in (0, 1, 3):  # the third client has no validation example
        own = path[path["client"] == unlike.names[k]].pivot(
            index="round", columns="split", values="value"
        )
        best = own["validation"].idxmin()
        assert found["validation"][k] == pytest.approx(own["validation"][best], rel=1e-10)
        assert found["test"][k] == pytest.approx(own["test"][best], rel=1e-10)


def test_a_client_without_validation_examples_is_judged_by_its_training_loss(unlike):
    found = lstar.estimate(setup(unlike), BestValidation(rounds=10), "loop")
    assert np.isnan(found["validation"][2])
    decided = lstar.deciding(found)
    assert decided[2] == found["train"][2]
    assert decided[0] == found["validation"][0]
    before = lstar.estimate(setup(unlike), BestValidation(rounds=1), "loop")
    assert found["train"][2] < before["train"][2]


def test_a_clients_number_does_not_depend_on_who_else_is_there(unlike):
    small = fp.Solver(lr=0.1, steps=3, batch=2)
    found = lstar.estimate(setup(unlike, solver=small), BestValidation(rounds=8), "loop")
    first = unlike.train.sizes[0]
    one = fp.Federation(
        ("0",),
        *(
            fp.data.Split(s.x[: s.offsets[1]], s.y[: s.offsets[1]], s.offsets[:2])
            for s in (unlike.train, unlike.validation, unlike.test)
        ),
        outputs=3,
    )
    assert one.train.sizes[0] == first
    lonely = lstar.estimate(setup(one, solver=small), BestValidation(rounds=8), "loop")
    assert lonely["validation"][0] == pytest.approx(found["validation"][0], rel=1e-12)


def test_patience_stops_a_client_and_rounds_bound_all(unlike):
    counted: list[int] = []
    wild = setup(unlike, solver=fp.Solver(lr=50.0, steps=1))
    stopped = lstar.estimate(
        wild, BestValidation(patience=2), "loop", lambda t, _: counted.append(t)
    )
    assert counted[-1] == stopped["rounds"].max() < 1000
    assert not stopped["capped"].any()
    counted.clear()
    bounded = lstar.estimate(
        setup(unlike), BestValidation(rounds=4), "loop", lambda t, _: counted.append(t)
    )
    assert counted == [0, 1, 2, 3, 4]
    assert bounded["capped"].all()
    assert (bounded["rounds"] == 4).all()


def test_a_client_goes_on_while_its_loss_falls_by_a_share_of_itself(unlike):
    slow = setup(unlike, solver=fp.Solver(lr=1e-3, steps=1))
    path = alone(unlike, 8, fp.Solver(lr=1e-3, steps=1))
    first = path[(path["client"] == "0") & (path["split"] == "validation")]["value"].to_numpy()
    fall = (first[0] - first[4]) / first[0]  # of four rounds
    patient = BestValidation(rounds=8, patience=4, tolerance=0.99 * fall)
    assert lstar.estimate(slow, patient, "loop")["rounds"][0] > 4
    strict = BestValidation(rounds=8, patience=4, tolerance=1.01 * fall)
    found = lstar.estimate(slow, strict, "loop")
    assert found["rounds"][0] == 4
    # It is too slow to go on, yet the best model seen is the last one.
    assert found["validation"][0] == pytest.approx(first[4], rel=1e-10)


def test_clients_that_stop_leave_the_others_alone(unlike):
    rule = BestValidation(rounds=40, patience=3)
    together = lstar.estimate(setup(unlike), rule, "vmap")
    one_by_one = lstar.estimate(setup(unlike), rule, "loop")
    assert together["rounds"].nunique() > 1
    pd.testing.assert_frame_equal(together, one_by_one, rtol=1e-9)


def test_clients_that_do_not_fit_at_once_train_in_groups(unlike, monkeypatch):
    rule = BestValidation(rounds=5)
    whole, told = lstar.estimate(setup(unlike), rule, "loop"), []
    monkeypatch.setattr(lstar, "FLOATS", 2 * setup(unlike).layout.size)
    grouped = lstar.estimate(setup(unlike), rule, "loop", lambda t, _: told.append(t))
    pd.testing.assert_frame_equal(grouped, whole)
    assert told == [*range(6), *range(5, 11)]
    assert lstar.cost(setup(unlike), rule).total == 10


def test_the_cost_is_known_before_it_is_paid(unlike):
    few = lstar.cost(setup(unlike, solver=fp.Solver(epochs=2, batch=4)), BestValidation())
    # clients of 9, 4, 1 and 6 examples: 3, 1, 1 and 2 batches a pass
    assert str(few) == "each client alone (L*), 4 clients, 2 to 6 steps a round"
    assert (few.rounds, few.examples) == (1000, 2 * 20)
    full = lstar.cost(setup(unlike), TrainPlateau())
    assert str(full) == "each client alone (L*), 4 clients, 1 step a round"
    assert (full.rounds, full.examples) == (10_000, 20)


def test_the_papers_rule_stops_where_the_training_loss_is_flat():
    federation = unlike_clients((12, 12))
    rule = TrainPlateau(rounds=60, tolerance=0.02, patience=1)
    flat = lstar.estimate(setup(federation), rule, "loop")
    assert (flat["rounds"] < 60).all()
    path = alone(federation, 60)
    best = lstar.estimate(setup(federation), BestValidation(rounds=60, patience=60), "loop")
    # It stops by the training loss, so its validation loss is one of the path, not the least.
    for k, name in enumerate(federation.names):
        seen = path[(path["client"] == name) & (path["split"] == "validation")]["value"]
        assert np.isclose(seen, flat["validation"][k], rtol=1e-10).any()
        assert flat["validation"][k] >= best["validation"][k]


def test_it_is_computed_once_and_then_read_from_disk(unlike, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path))
    calls: list[int] = []

    def cached(**more) -> pd.DataFrame:
        rule = BestValidation(rounds=more.pop("alone", 3))
        made = setup(unlike, **more)
        return lstar_cache.cached(made, rule, "loop", lambda t, _: calls.append(t))

    first = cached()
    assert calls
    calls.clear()
    pd.testing.assert_frame_equal(cached(), first)
    assert not calls
    for other in ({"seed": 1}, {"solver": fp.Solver(lr=0.4)}, {"alone": 4}):
        cached(**other)
        assert calls, other
        calls.clear()
    for same in ({"rounds": 7}, {"cohort": 1}, {"drop": 0.5}, {"algorithm": "qffl"}):
        pd.testing.assert_frame_equal(cached(**same), first)
        assert not calls, same


class Squared(fp.Classification):
    """A task that calls itself like another one, but is not."""

    def losses(self, output, target):
        return super().losses(output, target).square()


class Bent(nn.Module):
    """A module that looks like another one, but computes something else."""

    def __init__(self, shape, outputs, power=1.0):
        super().__init__()
        self.layer = nn.Linear(shape[0], outputs)
        self.power = power

    def forward(self, x):
        return self.layer(x) * self.power


def test_what_tasks_and_models_do_counts_not_what_they_are_called(unlike):
    plain = lstar_cache._key(setup(unlike, fp.Classification("linear")), BestValidation(), "loop")
    squared = lstar_cache._key(setup(unlike, Squared("linear")), BestValidation(), "loop")
    assert plain != squared
    one, two = (
        setup(unlike, lambda shape, outputs, p=p: Bent(shape, outputs, p)) for p in (1.0, 2.0)
    )
    assert repr(one.module) == repr(two.module)
    keys = {lstar_cache._key(s, BestValidation(), "loop") for s in (one, two)}
    assert len(keys) == 2


def test_a_damaged_file_of_the_cache_is_computed_again(unlike, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path))
    made = setup(unlike)
    first = lstar_cache.cached(made, BestValidation(rounds=2), "loop")
    for file in (tmp_path / "lstar").iterdir():  # the table, the curves and the models
        file.write_bytes(b"not a table")
    pd.testing.assert_frame_equal(lstar_cache.cached(made, BestValidation(rounds=2), "loop"), first)


@pytest.mark.parametrize("algorithm", ["eagle(lam=0.1)", "qffl"])
def test_a_run_that_went_on_agrees_with_the_direct_one_in_every_number(unlike, tmp_path, algorithm):
    def experiment(rounds: int) -> Experiment:
        rule = "best_validation(rounds=30, patience=5)"
        return Experiment(unlike, "linear", algorithm, rounds, solver=STEP, lstar=rule, seed=3)

    short = experiment(3).run(tmp_path / "parts")
    whole = experiment(9).run(tmp_path / "whole")
    gone_on = experiment(9).resume(tmp_path / "parts")
    for column in ("test_lstar", "validation_lstar", "lstar_rounds", "lstar_capped"):
        pd.testing.assert_series_equal(short.clients[column], whole.clients[column])
    pd.testing.assert_frame_equal(gone_on.clients, whole.clients, check_exact=True)
    models = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("parts", "whole")]
    assert models[0] == models[1]


def test_who_was_still_improving_is_recorded(unlike, tmp_path):
    rule = "best_validation(rounds=5, patience=2, tolerance=0.1)"
    made = Experiment(unlike, "linear", rounds=1, solver=STEP, lstar=rule, dtype="float64")
    result = made.run(tmp_path / "run")
    capped = result.clients[result.clients["lstar_capped"]]
    assert 0 < len(capped) < 4
    assert (capped["lstar_rounds"] == 5).all()
    log = RunDir(tmp_path / "run").log.read_text().splitlines()
    (noted,) = [entry for entry in map(json.loads, log) if "lstar" in entry]
    assert (noted["lstar"], noted["rounds"]) == (rule, 5)
    assert noted["capped"] == capped["client"].tolist()


def test_statistics_of_batchnorm_are_each_clients_own():
    def normed(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

    federation = unlike_clients((8, 8))
    both = [
        lstar.estimate(setup(federation, normed), BestValidation(rounds=5), engine)
        for engine in ("loop", "vmap")
    ]
    pd.testing.assert_frame_equal(*both, rtol=1e-10)
    assert np.isfinite(both[0][list(lstar.SPLITS)].to_numpy()).all()
