"""L*: the best loss a client reaches alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from torch import nn

import fedparity as fp
from fedparity.core import lstar
from fedparity.core.experiment import Experiment
from fedparity.core.lstar import BestValidation, TrainPlateau
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
    found = lstar.estimate(setup(unlike), BestValidation(patience=30), 30, engine)
    for k in (0, 1, 3):  # the third client has no validation example
        own = path[path["client"] == unlike.names[k]].pivot(
            index="round", columns="split", values="value"
        )
        best = own["validation"].idxmin()
        assert found["validation"][k] == pytest.approx(own["validation"][best], rel=1e-10)
        assert found["test"][k] == pytest.approx(own["test"][best], rel=1e-10)


def test_a_client_without_validation_examples_is_judged_by_its_training_loss(unlike):
    found = lstar.estimate(setup(unlike), BestValidation(), 10, "loop")
    assert np.isnan(found["validation"][2])
    decided = lstar.deciding(found)
    assert decided[2] == found["train"][2]
    assert decided[0] == found["validation"][0]
    before = lstar.estimate(setup(unlike), BestValidation(rounds=1), 10, "loop")
    assert found["train"][2] < before["train"][2]


def test_a_clients_number_does_not_depend_on_who_else_is_there(unlike):
    small = fp.Solver(lr=0.1, steps=3, batch=2)
    found = lstar.estimate(setup(unlike, solver=small), BestValidation(), 8, "loop")
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
    lonely = lstar.estimate(setup(one, solver=small), BestValidation(), 8, "loop")
    assert lonely["validation"][0] == pytest.approx(found["validation"][0], rel=1e-12)


def test_patience_stops_a_client_and_rounds_bound_all(unlike):
    counted: list[int] = []
    wild = setup(unlike, solver=fp.Solver(lr=50.0, steps=1))
    lstar.estimate(wild, BestValidation(patience=2), 500, "loop", lambda t, _: counted.append(t))
    assert counted[-1] < 500
    counted.clear()
    lstar.estimate(
        setup(unlike), BestValidation(rounds=4), 500, "loop", lambda t, _: counted.append(t)
    )
    assert counted == [0, 1, 2, 3, 4]


def test_the_papers_rule_stops_where_the_training_loss_is_flat():
    federation = unlike_clients((12, 12))
    counted: list[int] = []
    rule = TrainPlateau(tolerance=0.02, patience=1)
    flat = lstar.estimate(setup(federation), rule, 60, "loop", lambda t, _: counted.append(t))
    assert counted[-1] < 60
    path = alone(federation, 60)
    best = lstar.estimate(setup(federation), BestValidation(patience=60), 60, "loop")
    # It stops by the training loss, so its validation loss is one of the path, not the least.
    for k, name in enumerate(federation.names):
        seen = path[(path["client"] == name) & (path["split"] == "validation")]["value"]
        assert np.isclose(seen, flat["validation"][k], rtol=1e-10).any()
        assert flat["validation"][k] >= best["validation"][k]


def test_it_is_computed_once_and_then_read_from_disk(unlike, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path))
    calls: list[int] = []

    def cached(**more) -> pd.DataFrame:
        known = {"rounds": 3, **more}
        rounds = known.pop("rounds")
        made = setup(unlike, **known)
        return lstar.cached(made, BestValidation(), rounds, "loop", lambda t, _: calls.append(t))

    first = cached()
    assert calls
    calls.clear()
    pd.testing.assert_frame_equal(cached(), first)
    assert not calls
    for other in ({"seed": 1}, {"solver": fp.Solver(lr=0.4)}, {"rounds": 4}):
        cached(**other)
        assert calls, other
        calls.clear()


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
    plain = lstar._key(setup(unlike, fp.Classification("linear")), BestValidation(), 3, "loop")
    squared = lstar._key(setup(unlike, Squared("linear")), BestValidation(), 3, "loop")
    assert plain != squared
    one, two = (
        setup(unlike, lambda shape, outputs, p=p: Bent(shape, outputs, p)) for p in (1.0, 2.0)
    )
    assert repr(one.module) == repr(two.module)
    keys = {lstar._key(s, BestValidation(), 3, "loop") for s in (one, two)}
    assert len(keys) == 2


def test_a_damaged_file_of_the_cache_is_computed_again(unlike, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path))
    made = setup(unlike)
    first = lstar.cached(made, BestValidation(), 2, "loop")
    (file,) = (tmp_path / "lstar").iterdir()
    file.write_bytes(b"not a table")
    pd.testing.assert_frame_equal(lstar.cached(made, BestValidation(), 2, "loop"), first)


def test_every_client_has_the_budget_it_has_in_the_experiment(unlike, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(
        lstar,
        "cached",
        lambda s, r, rounds, *_: seen.append(rounds) or lstar.estimate(s, r, 1, "loop"),
    )
    Experiment(unlike, "linear", rounds=10).run()
    Experiment(unlike, "linear", rounds=10, cohort=1).run()
    assert seen == [10, 3]  # ceil(10 / 4)


def test_statistics_of_batchnorm_are_each_clients_own():
    def normed(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

    federation = unlike_clients((8, 8))
    both = [
        lstar.estimate(setup(federation, normed), BestValidation(), 5, engine)
        for engine in ("loop", "vmap")
    ]
    pd.testing.assert_frame_equal(*both, rtol=1e-10)
    assert np.isfinite(both[0].to_numpy()).all()
