"""FedwAvg: forgetting by example, and the weights it gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, bench, vector

import fedparity as fp
from fedparity.parts import FedwAvg


def test_weights_are_a_mixture_of_size_and_forgetting():
    # .7 (.5, .25, .25) + .3 (0, .75, .25)
    x = Script([FedwAvg(alpha=0.3)]).play(FIXTURE, forgotten=(0.0, 0.3, 0.1))
    torch.testing.assert_close(x, vector(1, 2) + vector(0.35, 0.4, 0.25) @ FIXTURE)


def test_where_nothing_was_forgotten_the_weights_are_those_given():
    x = Script([FedwAvg()]).play(FIXTURE, forgotten=(0.0, 0.0, 0.0))
    torch.testing.assert_close(x, vector(0.825, 1.8))


def test_equal_forgetting_mixes_size_and_uniform():
    x = Script([FedwAvg(alpha=1.0)]).play(FIXTURE, forgotten=(0.2, 0.2, 0.2))
    torch.testing.assert_close(x, vector(2.5 / 3, 1.9))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("every", "count_never"), [(1, False), (2, True)])
def test_forgetting_is_counted_example_by_example(unlike, engine, every, count_never):
    """Models drawn at random forget much; the count is made again from their predictions."""
    made = bench(
        unlike,
        [FedwAvg(every=every, count_never=count_never)],
        solver=fp.Solver(lr=0.1, steps=1),
        model="linear",
        engine=engine,
    )
    rng = torch.Generator().manual_seed(0)
    last = [np.zeros(n, dtype=bool) for n in unlike.train.sizes]
    ever, forgotten = ([row.copy() for row in last] for _ in range(2))
    for round in range(1, 5):
        x = torch.randn(len(made.server.x), generator=rng, dtype=torch.float64)
        made.server = made.server._replace(x=x)
        told = made.advance().reports["fedwavg"]["forgotten"]
        module = made.setup.layout.write(made.setup.module, x).eval()
        for k in range(len(unlike)):
            inputs, target = unlike.train.client(k)
            now = (module(inputs).argmax(1) == target).numpy()
            if round in range(1, 5, every):
                forgotten[k] |= last[k] & ~now
                ever[k], last[k] = ever[k] | now, now
        counted = [f | ~e if count_never else f for f, e in zip(forgotten, ever, strict=True)]
        torch.testing.assert_close(told, vector(*(row.mean() for row in counted)))
    assert len(set(told.tolist())) > 2


def test_who_is_not_asked_remembers_what_was_right_when_it_last_was(unlike):
    made = bench(unlike, "fedwavg", solver=fp.Solver(lr=0.1, steps=1), model="linear")
    made.advance()
    before = made.tensors()["client/fedwavg/right"]
    made.advance(answering=[0, 2])
    after = made.tensors()["client/fedwavg/right"]
    assert torch.equal(before[[1, 3]], after[[1, 3]])
    assert before.shape == (4, int(unlike.train.sizes.max()))
