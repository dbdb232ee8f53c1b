"""FedProx: the pull towards the received parameters."""

from __future__ import annotations

import pytest
import torch
from scripted import after, bench, parabolas, vector

import fedparity as fp

NET = "mlp(hidden=4)"


@pytest.mark.parametrize(("engine", "within"), [("loop", 0.0), ("vmap", 1e-12)])
def test_without_pull_it_is_fedavg(unlike, engine, within):
    solver = fp.Solver(lr=0.1, steps=3, batch=4)
    for weighting in ("size", "uniform"):
        one, other = (
            after(bench(unlike, a, solver=solver, model=NET, engine=engine, weighting=weighting), 3)
            for a in ("prox(mu=0)", "fedavg")
        )
        assert float((one - other).abs().max()) <= within


def test_the_first_local_step_is_unaffected(unlike):
    one, other = (
        after(bench(unlike, a, solver=fp.Solver(lr=0.1, steps=1, batch=4), model=NET))
        for a in ("prox(mu=7)", "fedavg")
    )
    assert torch.equal(one, other)


def test_two_steps_by_hand():
    # F(x) = (x - 3)^2 from x_t = 1, lr 0.1, mu 0.5:
    # g = -4, y = 1.4; g = 2 (1.4 - 3) + 0.5 (1.4 - 1) = -3, y = 1.7
    made = bench(
        parabolas([[1.0]], [[3.0]]), "prox(mu=0.5)", [1.0], solver=fp.Solver(lr=0.1, steps=2)
    )
    torch.testing.assert_close(after(made), vector(1.7))


@pytest.mark.parametrize("mu", [1.0, 4.0, 9.0])
def test_training_to_the_end_minimises_the_proximal_loss(mu):
    # min (y - 3)^2 + mu/2 (y - 1)^2 is at y = (6 + mu) / (2 + mu): 1 for mu -> inf
    made = bench(
        parabolas([[1.0]], [[3.0]]), f"prox(mu={mu})", [1.0], solver=fp.Solver(lr=0.1, steps=500)
    )
    torch.testing.assert_close(after(made), vector((6 + mu) / (2 + mu)))


def test_the_stronger_the_pull_the_nearer_to_the_received_model(unlike):
    solver = fp.Solver(lr=1e-4, steps=50)
    moved = []
    for mu in (0.0, 100.0, 9000.0):
        made = bench(unlike, f"prox(mu={mu})", solver=solver, model=NET)
        moved.append(float(made.advance().deltas.norm()))
    # A pull with lr mu = 0.9 leaves little more than the first step of fifty.
    assert moved[0] > moved[1] > moved[2]
    assert moved[2] < moved[0] / 40


def test_weight_decay_pulls_to_zero_and_the_term_to_the_received_model():
    # At the minimum of the loss only the decay acts: y = 3 - 0.1 * 0.5 * 3, then
    # g = 2 (-0.15) + 0.2 (-0.15) + 0.5 * 2.85 = 1.095, y = 2.85 - 0.1095
    made = bench(
        parabolas([[1.0]], [[3.0]]),
        "prox(mu=0.2)",
        [3.0],
        solver=fp.Solver(lr=0.1, steps=2, weight_decay=0.5),
    )
    torch.testing.assert_close(after(made), vector(2.7405))
