"""MaxFL: the share of clients below a threshold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scripted import FIXTURE, PRE, Script, bench, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import MaxFL


def moved(part: MaxFL, **reports) -> torch.Tensor:
    return Script([part]).play(FIXTURE, **reports) - vector(1.0, 2.0)


def test_weights_are_the_slopes_of_the_sigmoid():
    gap = np.array([0.0, 1.0, -0.5])
    s = 1 / (1 + np.exp(-gap))
    q = s * (1 - s)
    wanted = (q / (q.sum() + 1e-6)) @ FIXTURE.numpy()
    found = moved(MaxFL(threshold=1.0), loss=PRE)
    torch.testing.assert_close(found, torch.from_numpy(wanted), rtol=1e-12, atol=0)
    torch.testing.assert_close(moved(MaxFL(), gap=gap), found)


def test_equal_gaps_are_uniform_fedavg():
    found = moved(MaxFL(eps=1e-15), gap=(0.3, 0.3, 0.3))
    torch.testing.assert_close(found, FIXTURE.mean(0), rtol=1e-12, atol=0)


def test_clients_served_already_and_clients_out_of_reach_do_not_count():
    found = moved(MaxFL(), gap=(40.0, 0.1, -40.0))
    torch.testing.assert_close(found, FIXTURE[1], rtol=1e-5, atol=0)


def test_where_nobody_is_near_the_round_moves_little():
    assert float(moved(MaxFL(), gap=(60.0, 70.0, -60.0)).norm()) < 1e-15


def test_the_share_of_those_content_is_told():
    script = Script([MaxFL(threshold=1.0)])
    script.play(FIXTURE, loss=PRE)
    assert script.algorithm.parts[0].tell(script.state("maxfl")) == {
        "content": pytest.approx(2 / 3)
    }


def test_thresholds_given_by_the_user_are_those_compared(unlike):
    given = pd.DataFrame({"client": unlike.names, "lstar": [0.5, 0.6, 0.7, 0.8]})
    solver = fp.Solver(lr=0.1, steps=1)
    known = {"solver": solver, "model": "mlp(hidden=4)"}
    found = bench(unlike, "maxfl", lstar=given, **known).advance().reports["maxfl"]["gap"]
    zero = given.assign(lstar=0.0)
    losses = bench(unlike, "maxfl", lstar=zero, **known).advance().reports["maxfl"]["gap"]
    torch.testing.assert_close(losses - found, vector(0.5, 0.6, 0.7, 0.8))


def test_without_thresholds_it_is_refused_before_the_run(unlike):
    with pytest.raises(InputError, match="maxfl"):
        bench(unlike, "maxfl", solver=fp.Solver(lr=0.1, steps=1), model="mlp(hidden=4)")
