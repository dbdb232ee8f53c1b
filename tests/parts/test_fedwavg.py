"""FedwAvg: forgetting by class, and the weights it gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, bench, vector

import fedparity as fp
from fedparity.parts import FedwAvg
from fedparity.parts.contrib.fedwavg import right_by_class


def test_weights_are_a_mixture_of_size_and_forgetting():
    # .7 (.5, .25, .25) + .3 (0, .75, .25)
    x = Script([FedwAvg(alpha=0.3)]).play(FIXTURE, events=(0.0, 0.3, 0.1))
    torch.testing.assert_close(x, vector(1, 2) + vector(0.35, 0.4, 0.25) @ FIXTURE)


def test_where_nothing_was_forgotten_the_weights_are_those_given():
    x = Script([FedwAvg()]).play(FIXTURE, events=(0.0, 0.0, 0.0))
    torch.testing.assert_close(x, vector(0.825, 1.8))


def test_equal_forgetting_mixes_size_and_uniform():
    x = Script([FedwAvg(alpha=1.0)]).play(FIXTURE, events=(0.2, 0.2, 0.2))
    torch.testing.assert_close(x, vector(2.5 / 3, 1.9))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_events_are_the_right_answers_lost_class_by_class(unlike, engine):
    """Models drawn at random forget much; the count is made again from their predictions."""
    made = bench(
        unlike, "fedwavg", solver=fp.Solver(lr=0.1, steps=1), model="linear", engine=engine
    )
    rng = torch.Generator().manual_seed(0)
    old, events = torch.zeros(len(unlike), 3), torch.zeros(len(unlike))
    for _ in range(4):
        x = torch.randn(len(made.server.x), generator=rng, dtype=torch.float64)
        made.server = made.server._replace(x=x)
        told = made.advance().reports["fedwavg"]["events"]
        module = made.setup.layout.write(made.setup.module, x).eval()
        for k in range(len(unlike)):
            inputs, target = unlike.train.client(k)
            right = target[module(inputs).argmax(1) == target]
            now = torch.bincount(right, minlength=3) / len(target)
            events[k] += (old[k] - now).clamp_min(0).sum()
            old[k] = now
        torch.testing.assert_close(told.float(), events)
    assert float(events.sum()) > 1


@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_a_single_score_tells_two_classes_apart(shape):
    scores, labels = torch.tensor([2.0, -1.0, -3.0, 1.0]).reshape(shape), torch.tensor([1, 0, 1, 0])
    found = right_by_class(torch.zeros(4), scores, labels)
    assert np.argwhere(found.numpy()).tolist() == [[0, 1], [1, 0]]
