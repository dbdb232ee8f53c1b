"""FedVARP: the last updates of absent clients stand in for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, PRE, Script, matrix, vector

from fedparity.parts import FedEBA, FedFV, Varp
from fedparity.recipes import algorithm


@pytest.mark.parametrize("by_size", [True, False])
def test_full_participation_is_fedavg(by_size):
    varp, plain = (Script(parts, by_size=by_size) for parts in ([Varp()], []))
    draw = torch.Generator().manual_seed(0)
    for _ in range(4):
        deltas = torch.randn(3, 2, dtype=torch.float64, generator=draw)
        torch.testing.assert_close(varp.play(deltas), plain.play(deltas))


def test_first_round_is_fedavg_over_those_who_answer():
    varp, plain = (Script(parts) for parts in ([Varp()], []))
    found = varp.play(FIXTURE[:2], clients=[0, 1])
    torch.testing.assert_close(found, plain.play(FIXTURE[:2], clients=[0, 1]))


def test_step_uses_the_old_memory():
    # two equal clients, one a round. Round 1: u_0 = 1, so v = 0 + (1 - 0) = 1, mean 1/2, y_0 = 1.
    # Round 2: u_0 = 3: v = 1/2 + (3 - 1) = 2.5, not 1/2 + 0; mean 1/2 + (3 - 1)/2 = 3/2.
    # Round 3: u_1 = 5: v = 3/2 + (5 - 0) = 6.5; mean 3/2 + 5/2 = 4.
    script = Script([Varp()], vector(0.0), n=[1, 1])
    path = [
        float(script.play(matrix((u,)), clients=[k])[0]) for k, u in ((0, 1.0), (0, 3.0), (1, 5.0))
    ]
    assert path == pytest.approx([1.0, 3.5, 10.0])
    torch.testing.assert_close(script.state("varp")["mean"], vector(4.0))
    torch.testing.assert_close(script.state("varp")["y"], matrix((3.0,), (5.0,)))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("by_size", [True, False])
def test_mean_is_that_of_the_memory_whoever_took_part(by_size, scaled):
    n = [7, 1, 2, 5, 3]
    script = Script([Varp(scaled=scaled)], torch.zeros(4).double(), n=n, by_size=by_size)
    shares = vector(*n) / sum(n) if by_size else torch.full((5,), 0.2).double()
    rng = np.random.Generator(np.random.Philox(0))
    for _ in range(12):
        clients = np.sort(rng.choice(5, rng.integers(1, 6), replace=False)).tolist()
        deltas = torch.from_numpy(rng.standard_normal((len(clients), 4)))
        script.play(deltas, clients, steps=[1 + k for k in clients])
        state = script.state("varp")
        torch.testing.assert_close(state["mean"], shares @ state["y"])


def test_scaled_memory_is_of_updates_a_step():
    # u_k = D_k / (lr tau_k), and the step is lr mean(tau) v: here lr (2 + 4)/2 mean(u)
    lr, steps = 0.1, (2, 4)
    deltas = matrix((0.4,), (0.4,))
    script = Script([Varp(scaled=True)], vector(0.0), n=[1, 1], lr=lr)
    u = vector(0.4 / (lr * 2), 0.4 / (lr * 4))  # 2 and 1
    found = script.play(deltas, steps=steps)
    torch.testing.assert_close(found, vector(lr * 3 * float(u.mean())))
    torch.testing.assert_close(script.state("varp")["y"], u[:, None])


def test_scaling_changes_nothing_where_steps_are_equal():
    plain, scaled = (Script([Varp(scaled=s)], torch.zeros(2).double()) for s in (False, True))
    for clients in ([0, 1], [2], [0, 2], [1]):
        found = [
            s.play(FIXTURE[clients], clients, steps=[3] * len(clients)) for s in (plain, scaled)
        ]
        torch.testing.assert_close(*found)


def test_fair_weights_weigh_the_changes():
    # v = mean + sum_S a_k (u_k - y_k) with FedEBA's weights (0.114195, 0.843795, 0.042010)
    script = Script([FedEBA(tau=0.5, floor=None), Varp()], by_size=False)
    script.play(FIXTURE, loss=PRE)
    y, x = FIXTURE, script.server.x
    a = torch.softmax(vector(*PRE) / 0.5, 0)
    found = script.play(2 * FIXTURE, loss=PRE)
    torch.testing.assert_close(found, x + y.mean(0) + a @ (2 * FIXTURE - y))


def test_weights_that_do_not_sum_to_one_scale_the_memory_alike():
    # with updates that repeat, the step is the sum of the weights times their mean
    script = Script(algorithm("qffl(q=1)+varp").parts, by_size=False)
    losses = {"loss": [1.0, 1.0, 1.0], "norm2": [9.0, 9.0, 9.0]}
    script.play(FIXTURE, **losses)
    before = script.server.x
    # h_k = q F^{q-1} |g|^2 + L F^q = 9 + 10, weights L F / (3 * 19): their sum is 10/19
    torch.testing.assert_close(script.play(FIXTURE, **losses) - before, 10 / 19 * FIXTURE.mean(0))


def test_fedfv_combines_what_the_memory_has_corrected():
    # two of three clients; FedFV alone, given D_k - y_k + mean, makes the same step
    both = Script(algorithm("fedfv(tau=0)+varp").parts, by_size=False)
    both.play(FIXTURE, loss=PRE)
    x, y = both.server.x, FIXTURE
    updates = matrix((0.3, -0.2), (-0.4, 0.1))
    found = both.play(updates, clients=[0, 2], loss=PRE[:2]) - x
    alone = Script([FedFV(tau=0)], vector(0, 0), by_size=False)
    corrected = updates - y[[0, 2]] + y.mean(0)
    assert float(corrected[0] @ corrected[1]) < 0  # there is a conflict to remove
    torch.testing.assert_close(found, alone.play(corrected, clients=[0, 2], loss=PRE[:2]))
    torch.testing.assert_close(both.state("varp")["y"], torch.stack([updates[0], y[1], updates[1]]))


def test_in_the_first_round_fedfv_with_memory_is_fedfv():
    found, wanted = (
        Script(algorithm(text).parts).play(FIXTURE, loss=PRE) for text in ("fedfv+varp", "fedfv")
    )
    torch.testing.assert_close(found, wanted)
