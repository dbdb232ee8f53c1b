"""A profile accounts for all the time of a round and says what stands out."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import fedparity as fp
from fedparity.engines import engine as working
from fedparity.engines.engine import Engine
from fedparity.engines.lane import Lane
from fedparity.engines.stacked import pooled
from fedparity.profiling import places, profile
from fedparity.profiling.advice import CHECKPOINT, EVALUATION, advice
from fedparity.profiling.places import ENGINE, FIXED, LANE
from fedparity.testing import Trial


def small(algorithm: str = "fedavg", **more: object) -> fp.Experiment:
    trial = Trial(solver=fp.Solver(lr=0.1, steps=2, batch=4))
    made = trial.experiment((), dtype="float32", weighting=None)
    return replace(made, algorithm=algorithm, **more)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_phases_add_up_to_the_round_and_name_the_parts(engine):
    found = profile(small("qffl(q=2)+momentum", engine=engine), rounds=2)
    assert sum(phase.ms for phase in found.phases) == pytest.approx(found.ms)
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)
    names = {phase.name for phase in found.phases}
    assert {"qffl: finish", "momentum: step", EVALUATION, CHECKPOINT} <= names
    assert {places.FORWARD, places.LOSSES, places.PLANNING, places.GATHERING} <= names
    assert {places.BACKWARD, places.STEP} <= names or places.FUSED in names
    assert None not in names
    assert found.engine == engine
    assert found.rounds == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_loss_pass_is_counted_as_one_whoever_does_it(workers, monkeypatch):
    real = pooled.losses_block

    def slow(*args):
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass
        return real(*args)

    monkeypatch.setattr(working, "cores", lambda: workers)
    monkeypatch.setattr(pooled, "losses_block", slow)
    found = profile(small("qffl", engine="vmap"), rounds=2)
    shares = {phase.name: phase.share for phase in found.phases}
    assert shares[places.LOSSES] > 0.5


def test_watching_does_not_change_what_is_learned():
    before = {(owner, name): vars(owner)[name] for owner, name, _ in FIXED}
    made = small("eagle(lam=0.1)")
    alone = made.run().clients
    profile(made, rounds=2)
    assert all(vars(owner)[name] is function for (owner, name), function in before.items())
    assert made.run().clients.equals(alone)


def test_every_place_that_is_watched_exists():
    for owner, name, _ in FIXED:
        assert callable(vars(owner)[name]), name
    for base, names in ((Lane, LANE), (Engine, ENGINE)):
        kinds = base.__subclasses__()
        for name in names:
            assert any(name in vars(kind) for kind in kinds), name


SEEN = [
    ({EVALUATION: 0.5}, {"evaluate_every": 1}, "raise evaluate-every (now every round)"),
    ({EVALUATION: 0.5}, {"evaluate_every": 3}, "(now every 3 rounds)"),
    ({CHECKPOINT: 0.2}, {"checkpoint_every": 1}, "raise checkpoint-every"),
    ({CHECKPOINT: 0.2}, {}, "set checkpoint-every"),
    ({places.LOSSES: 0.4}, {"algorithm": "qffl"}, "'qffl' asks every client for its loss"),
    ({places.GATHERING: 0.2, places.PLANNING: 0.2}, {}, "Batches take 40%"),
    ({"qffl: finish": 0.4}, {"algorithm": "qffl"}, "'qffl: finish' takes 40%"),
    ({}, {"engine": "loop"}, "auto would take 'vmap'"),
    ({}, {"dtype": "float64"}, "float32 is usual"),
    ({places.FORWARD: 0.5, places.BACKWARD: 0.25}, {}, "Nothing stands out: 75%"),
]


@pytest.mark.parametrize(("shares", "settings", "told"), SEEN, ids=[told for *_, told in SEEN])
def test_what_stands_out_is_said_and_nothing_else(shares, settings, told):
    found = advice(small(**settings), shares)
    assert len(found) == 1
    assert told in found[0]
