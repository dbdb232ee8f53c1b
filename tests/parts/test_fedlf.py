"""FedLF: a common descent direction in every layer, with a row towards equal losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from logistic import batches, gradient, loss, whole
from scipy.optimize import minimize
from scripted import Script, bench, matrix, vector

import fedparity as fp
from fedparity.parts import FedLF

LR = 0.1


def shortest(rows):
    """Return the shortest vector in the hull of rows, by a general solver."""
    gram = rows @ rows.T
    scale = gram.diagonal().max()
    found = minimize(
        lambda a: a @ gram @ a / scale,
        np.full(len(rows), 1 / len(rows)),
        jac=lambda a: 2 * gram @ a / scale,
        bounds=[(0, 1)] * len(rows),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return found.x @ rows


def direction(g, losses, layers, away=()):
    """Return the direction of the authors' code from gradients, losses and slices of layers."""
    m, length = len(g), np.linalg.norm(losses)
    p = np.full(m, 1 / np.sqrt(m))
    h = (losses @ p * losses / length - p * length) / length**2
    found = []
    for layer in layers:
        q = g[:, layer]
        norms = np.linalg.norm(q, axis=1)
        mu = norms.mean()
        q = q / norms[:, None] * mu
        fair = h @ q
        rows = [*q, fair / np.linalg.norm(fair) * mu]
        rows += [old[layer] / np.linalg.norm(old[layer]) * mu for old in away]
        found.append(shortest(np.array(rows)))
    d = np.concatenate(found)
    own = np.linalg.norm(d)
    long = d / own * np.linalg.norm(g.mean(0))
    while (-(g @ long)).max() > 1e-6:
        if np.linalg.norm(long) <= 2 * own:
            return d
        long = long / 2
    return long


def test_two_clients_by_hand():
    # Gradients (3, 0) and (0, 1) at length 2: (2, 0), (0, 2). Losses 2 and 1: the fair row goes
    # along 0.0632 (2, 0) - 0.1265 (0, 2), at length 2: (0.8944, -1.7889). The hull's nearest point
    # to 0 lies between it and (0, 2): orthogonal to (0.8944, -3.7889).
    g = matrix((3.0, 0.0), (0.0, 1.0))
    found = Script([FedLF()], n=(1, 1), lr=LR).play(-LR * g, loss=(2.0, 1.0)) - vector(1.0, 2.0)
    d = np.array([0.8944272, -1.7888544])
    edge = d - [0.0, 2.0]
    t = -edge[1] * 2.0 / (edge @ edge)
    near = np.array([0.0, 2.0]) + t * edge
    length = np.hypot(1.5, 0.5)
    wanted = -LR * near / np.hypot(*near) * length
    torch.testing.assert_close(found, vector(*wanted), rtol=1e-6, atol=0)


def test_equal_losses_have_no_fair_row():
    g = matrix((3.0, 0.0), (0.0, 1.0))
    found = Script([FedLF()], n=(1, 1), lr=LR).play(-LR * g, loss=(0.3, 0.3)) - vector(1.0, 2.0)
    # (1, 1) at the length of (1.5, 0.5)
    torch.testing.assert_close(found, vector(1.0, 1.0) * -LR * np.hypot(1.5, 0.5) / np.sqrt(2))


def test_opposite_gradients_leave_the_model():
    g = matrix((1.0, 0.0), (-1.0, 0.0))
    found = Script([FedLF()], n=(1, 1), lr=LR).play(-LR * g, loss=(0.3, 0.3))
    torch.testing.assert_close(found, vector(1.0, 2.0))


def test_a_client_that_did_not_move_has_no_row():
    g = matrix((3.0, 0.0), (0.0, 0.0))
    found = Script([FedLF()], n=(1, 1), lr=LR).play(-LR * g, loss=(0.3, 0.3)) - vector(1.0, 2.0)
    torch.testing.assert_close(found, vector(-0.15, 0.0))


def test_clients_that_are_away_are_not_climbed_for_a_while():
    script = Script([FedLF()], n=(1, 1, 1, 1), cohort=2, lr=LR)
    first = matrix((0.0, 1.0), (0.1, 1.0))
    script.play(-LR * first, clients=[0, 1], loss=(1.0, 1.0))
    now = matrix((1.0, -0.8), (1.0, -0.7))
    before = script.server.x
    # Two of four are known, as many as are asked: none counts yet.
    script.play(-LR * now, clients=[2, 3], loss=(1.0, 1.0))
    g = now.numpy()
    wanted = direction_without_fair(g, [])
    np.testing.assert_allclose((script.server.x - before).numpy(), -LR * wanted, rtol=1e-6)
    before = script.server.x
    # Now four are known: those of round 1 and 2 = 4 / 2 rounds ago count.
    script.play(-LR * now, clients=[2, 3], loss=(1.0, 1.0))
    wanted = direction_without_fair(g, first.numpy())
    moved = (script.server.x - before).numpy()
    np.testing.assert_allclose(moved, -LR * wanted, rtol=1e-6)
    assert (first.numpy() @ moved < 0).all()
    before = script.server.x
    script.play(-LR * now, clients=[2, 3], loss=(1.0, 1.0))
    np.testing.assert_allclose(
        (script.server.x - before).numpy(), -LR * direction_without_fair(g, []), rtol=1e-6
    )


def direction_without_fair(g, away):
    lengths = np.linalg.norm(g, axis=1)
    rows = [*(g / lengths[:, None]), *(old / np.linalg.norm(old) for old in away)]
    d = shortest(np.array(rows) * lengths.mean())
    return d / np.linalg.norm(d) * np.linalg.norm(g.mean(0))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_rounds_are_those_of_the_authors_rule_in_numpy(unlike, engine):
    solver = fp.Solver(lr=LR, steps=2, batch=3)
    made = bench(unlike, "fedlf", solver=solver, model="linear", engine=engine)
    clients, v = range(len(unlike)), made.x.numpy()
    layers = [slice(0, len(v) - 3), slice(len(v) - 3, len(v))]
    for round in range(1, 4):
        g = []
        for k in clients:
            y = v
            for one in batches(made, round, k):
                y = y - LR * gradient(y, one)
            g.append((v - y) / LR)
        losses = np.array([loss(v, whole(made, k)) for k in clients])
        d = direction(np.array(g), losses, layers)
        made.advance()
        np.testing.assert_allclose(made.server.x.numpy(), v - LR * d, rtol=1e-5, atol=1e-7)
        v = made.server.x.numpy()
