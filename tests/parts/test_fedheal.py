"""FedHEAL: updates of the usual sign, and weights by the length of what is left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from logistic import batches, gradient
from scripted import FIXTURE, Script, bench, matrix, vector

import fedparity as fp
from fedparity.parts import FedHEAL


def test_weights_grow_by_lengths_and_keep_their_pace():
    part = FedHEAL(beta=0.4)
    script = Script([part])
    ones = torch.ones_like(FIXTURE)
    script.play(FIXTURE, mask=ones, length=(1.0, 2.0, 1.0))
    # 1/3 + 0.4 (1/4, 1/2, 1/4)
    torch.testing.assert_close(
        script.state("fedheal")["weights"], vector(1 / 3 + 0.1, 1 / 3 + 0.2, 1 / 3 + 0.1)
    )
    before = script.server.x
    script.play(FIXTURE, mask=ones, length=(1.0, 0.0, 0.0))
    # moves: 0.6 (0.1, 0.2, 0.1) + 0.4 (1, 0, 0)
    weights = vector(1 / 3 + 0.1 + 0.46, 1 / 3 + 0.2 + 0.12, 1 / 3 + 0.1 + 0.06)
    moved = script.server.x - before
    torch.testing.assert_close(moved, (weights / weights.sum()) @ FIXTURE)


def test_a_parameter_is_averaged_over_those_who_kept_it():
    mask = matrix((1, 0), (0, 0), (1, 0))
    kept = FIXTURE * mask
    script = Script([FedHEAL(beta=0.0)])
    found = script.play(kept, mask=mask, length=(1.0, 1.0, 1.0)) - vector(1.0, 2.0)
    torch.testing.assert_close(found, vector((-0.2 - 0.5) / 2, 0.0))


def test_absent_clients_keep_weight_and_pace():
    script = Script([FedHEAL()])
    script.play(FIXTURE[:2], clients=[0, 1], mask=torch.ones(2, 2), length=(1.0, 1.0))
    assert float(script.state("fedheal")["weights"][2]) == pytest.approx(1 / 3)
    assert float(script.state("fedheal")["moves"][2]) == 0


def test_the_usual_sign_is_that_of_the_rounds_before():
    part, falls = FedHEAL(threshold=0.3), torch.tensor([1.0, 0.0, 0.5, 0.29, 0.31])
    assert part.kept(torch.full((5,), -1.0), falls).tolist() == [1, 0, 1, 0, 1]
    assert part.kept(torch.full((5,), 1.0), falls).tolist() == [0, 1, 1, 1, 1]
    assert FedHEAL(threshold=-1).kept(torch.ones(5), falls).tolist() == [1] * 5


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_rounds_are_those_of_numpy(unlike, engine):
    lr, beta, threshold = 0.3, 0.4, 0.4
    solver = fp.Solver(lr=lr, steps=2, batch=3)
    text = f"fedheal(threshold={threshold}, beta={beta})"
    made = bench(unlike, text, solver=solver, model="linear", engine=engine)
    clients, v = range(len(unlike)), made.x.numpy()
    falls, moves = np.zeros((4, len(v))), np.zeros(4)
    weights, left_out = np.full(4, 0.25), 0
    for round in range(1, 6):
        masks, kept, lengths = [], [], []
        for k in clients:
            y = v
            for one in batches(made, round, k):
                y = y - lr * gradient(y, one)
            up = v - y  # the authors' sign
            share = np.where(up >= 0, falls[k], 1 - falls[k])
            mask = share > threshold if round > 1 else np.ones_like(v, dtype=bool)
            falls[k] = (falls[k] * (round - 1) + (up >= 0)) / round
            masks.append(mask)
            kept.append(-up * mask)
            weight, bias = kept[-1][:-3], kept[-1][-3:]
            lengths.append(np.linalg.norm(weight) + np.linalg.norm(bias))
        moves = (1 - beta) * moves + beta * np.array(lengths) / sum(lengths)
        weights = weights + moves
        each = (weights / weights.sum())[:, None] * np.array(masks)
        total = each.sum(0)
        shares = np.divide(each, total, out=np.zeros_like(each), where=total > 0)
        v = v + (shares * np.array(kept)).sum(0)
        left_out += (~np.array(masks)).sum()
        made.advance()
        np.testing.assert_allclose(made.server.x.numpy(), v, rtol=1e-11, atol=1e-13)
    assert left_out > 5
