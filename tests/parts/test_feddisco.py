"""FedDisco: discrepancies of label mixtures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, after, bench, matrix, vector

import fedparity as fp
from fedparity.parts import FedDisco

SIZES = vector(0.5, 0.25, 0.25)
COUNTS = matrix((8, 2, 0), (3, 3, 3), (0, 0, 5))


@pytest.mark.parametrize(
    ("a", "wanted"),
    [
        # .5 - .02 + .1, .25 - .05 + .1, .25 - .09 + .1 over their sum 1.14
        (0.1, (0.508772, 0.263158, 0.228070)),
        # .5, .1, and -.1, which counts as 0, over 0.6
        (0.5, (0.833333, 0.166667, 0.0)),
    ],
)
def test_fixture(a, wanted):
    found = FedDisco(a=a, b=0.1).lowered(SIZES, vector(0.2, 0.5, 0.9))
    torch.testing.assert_close(found, vector(*wanted), atol=1e-6, rtol=0)


def test_discrepancies_are_those_of_the_formulas():
    q = COUNTS.numpy() / COUNTS.numpy().sum(1, keepdims=True)
    for whole, u in (("uniform", np.full(3, 1 / 3)), ("clients", np.array([11, 5, 8]) / 24)):
        wanted = {
            "l1": np.abs(q - u).sum(1),
            "l2": np.sqrt(((q - u) ** 2).sum(1)),
            "cosine": 1 - q @ u / np.linalg.norm(q, axis=1) / np.linalg.norm(u),
            "kl": [sum(a * np.log(a / b) for a, b in zip(row, u, strict=True) if a) for row in q],
        }
        for metric, d in wanted.items():
            part = FedDisco(metric=metric, whole=whole, normalise="none")
            torch.testing.assert_close(part.discrepancy(COUNTS), torch.tensor(np.array(d)))


def test_only_kl_is_divided_by_its_sum_unless_told():
    assert float(FedDisco().discrepancy(COUNTS).sum()) == pytest.approx(1)
    l2 = FedDisco(metric="l2").discrepancy(COUNTS)
    torch.testing.assert_close(l2, FedDisco(metric="l2", normalise="none").discrepancy(COUNTS))
    assert float(FedDisco(metric="l2", normalise="sum").discrepancy(COUNTS).sum()) == pytest.approx(
        1
    )


def test_equal_mixtures_shift_the_weights_by_a_constant():
    x = Script([FedDisco(a=0.3, b=0.2, metric="l2")]).play(FIXTURE, counts=[[2, 1, 0]] * 3)
    d = float(FedDisco(metric="l2").discrepancy(matrix((2, 1, 0)))[0])
    shifted = SIZES - 0.3 * d + 0.2
    torch.testing.assert_close(x, vector(1, 2) + shifted / shifted.sum() @ FIXTURE)


def test_limits_are_the_given_weights_and_the_plain_mean():
    x = Script([FedDisco(a=0, b=0)]).play(FIXTURE, counts=COUNTS)
    torch.testing.assert_close(x, vector(0.825, 1.8))
    x = Script([FedDisco(a=0, b=1e9)]).play(FIXTURE, counts=COUNTS)
    torch.testing.assert_close(x, vector(2.5 / 3, 1.9), rtol=1e-8, atol=0)


def test_where_nothing_is_left_the_weights_are_the_given_ones():
    x = Script([FedDisco(a=50, b=-1)]).play(FIXTURE, counts=COUNTS)
    torch.testing.assert_close(x, vector(0.825, 1.8))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_counts_are_those_of_the_training_labels(unlike, engine):
    made = bench(
        unlike, "feddisco", solver=fp.Solver(lr=0.1, steps=1), model="linear", engine=engine
    )
    counts = made.advance().reports["feddisco"]["counts"]
    for k in range(len(unlike)):
        wanted = torch.bincount(unlike.train.client(k)[1], minlength=3)
        assert counts[k].tolist() == wanted.tolist()


def test_it_lowers_the_weights_that_another_part_gives(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=1), "model": "linear"}
    found = after(bench(unlike, "term(t=2)+feddisco(a=0, b=0)", **known))
    torch.testing.assert_close(found, after(bench(unlike, "term(t=2)", **known)))
