"""Contestants of the benchmark do the work they claim to do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import memory
import numpy as np
import pytest
import torch
from batched import ChannelsLast, FullBatches, Round, Stacked, arithmetic
from contest import Contestant, Rounds, Times, experiment, turns
from methods import METHODS, Asks, Pass
from plain import PlainLoop
from workloads import WORKLOADS, Workload

import fedparity as fp
from fedparity.method.messages import Down

SMALL = {
    "lin": replace(WORKLOADS["lin"], clients=6, cohort=4, examples=30),
    "mlp": replace(WORKLOADS["mlp"], clients=4, cohort=2, examples=120, steps=3),
    "cnn": replace(WORKLOADS["cnn"], clients=3, cohort=2, examples=8, steps=2, batch=4),
    "silo": replace(WORKLOADS["silo"], examples=20),
    "device": replace(WORKLOADS["device"], clients=200, cohort=20),
}


def ours(made: fp.Experiment) -> torch.Tensor:
    rounds = Rounds(made)
    rounds()
    rounds.close()
    return rounds.state.server.x


def theirs(made: Round) -> torch.Tensor:
    if isinstance(made, ChannelsLast):
        return torch.cat([p.detach().flatten() for p in made.module.parameters()])
    if isinstance(made, FullBatches):
        return torch.cat([made.w.flatten(), made.b])
    assert isinstance(made, Stacked)
    pairs = zip(made.w, made.b, strict=True)
    return torch.cat([t.flatten() for w, b in pairs for t in (w[0].T, b[0])])


@pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)
def test_the_arithmetic_by_hand_gives_the_models_of_the_loop_engine(workload: Workload):
    by_hand = arithmetic(experiment(workload), workload.model)
    by_hand()
    expected = ours(experiment(workload, engine="loop"))
    torch.testing.assert_close(theirs(by_hand), expected, rtol=1e-4, atol=1e-5)
    before = torch.cat(
        [p.detach().flatten() for p in experiment(workload).setup.module.parameters()]
    )
    assert (expected - before).abs().max() > 1e-4


def test_the_plain_loop_on_full_batches_gives_the_models_of_the_loop_engine():
    plain = PlainLoop(experiment(SMALL["silo"]))
    plain()
    moved = torch.cat([p.detach().flatten() for p in plain.model.parameters()])
    torch.testing.assert_close(moved, ours(experiment(SMALL["silo"], engine="loop")))


@pytest.mark.parametrize("method", METHODS)
def test_methods_whose_cost_is_measured_read_the_loss_that_is_taken_off(method):
    made = experiment(SMALL["lin"], method, lstar="best_validation(rounds=1)")
    fact = METHODS[method]
    losses = {"loss", "validation_loss", "end_loss"} & made.setup.algorithm.train_reads
    assert losses == ({fact} if fact else set())
    if fact:
        asking = experiment(SMALL["lin"], [Asks(fact=fact)]).setup.algorithm
        assert asking.train_reads == {fact}


def test_fedfv_is_weighed_against_its_updates():
    found = memory.fedfv(clients=4, parameters=1000)
    assert found["matrix"] == 4 * 1000 * 4
    assert found["seconds"] > 0


@pytest.mark.parametrize("names", ["abc", "ab", "a"])
def test_contestants_are_shuffled_and_nobody_comes_after_itself(names):
    calls: list[str] = []
    some = [Contestant(name, lambda name=name: calls.append(name)) for name in names]
    found = turns(some, repeats=20, wanted=1)
    assert {name: len(times) for name, times in found.items()} == dict.fromkeys(names, 20)
    drawn = calls[2 * len(names) :]
    rounds = ["".join(drawn[i : i + len(names)]) for i in range(0, len(drawn), len(names))]
    assert all(sorted(each) == sorted(names) for each in rounds)
    pairs = set(pairwise(drawn))
    assert names == "a" or pairs == {(a, b) for a in names for b in names if a != b}


def test_a_pass_by_itself_measures_the_clients_of_the_next_round():
    rounds = Rounds(experiment(SMALL["lin"], [Asks(fact="loss")]))
    rounds()
    found, run, server = Pass(rounds)(), rounds.run, rounds.state.server
    rounds.close()
    everyone = run.door.evaluate(Down("evaluate", 1, 0.0, server.x, server.buffers), "train")
    np.testing.assert_allclose(
        found["loss"], everyone["global"]["loss"][run.experiment.sample(2)], rtol=1e-5
    )


def test_a_ratio_is_that_of_neighbours_in_time():
    drifting = Times(ours=[1.0, 5.0, 3.0], theirs=[3.0, 15.0, 4.0])
    assert drifting.ratio("theirs", "ours") == 3
    assert drifting.more("theirs", "ours") == 2
    assert drifting.of(max, "ours", "theirs") == 4
    assert drifting.fastest("theirs", "ours") == "ours"
