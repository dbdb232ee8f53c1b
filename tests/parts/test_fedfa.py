"""FedFa: information of accuracies and counts, and three momenta."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, bench, vector

import fedparity as fp
from fedparity.parts import FedFa

ACC = (0.9, 0.5, 0.7)


def weights(part: FedFa, accuracy, counts) -> torch.Tensor:
    return part.information(vector(*accuracy), torch.tensor(counts))


def reference(accuracy, counts, alpha=0.5) -> np.ndarray:
    """The weights by the formulas, in numpy."""
    A = np.array([-math.log2(a / sum(accuracy)) for a in accuracy])
    B = np.array([-math.log2(1 - f / sum(counts)) for f in counts])
    return alpha * A / A.sum() + (1 - alpha) * B / B.sum()


def test_fixture():
    found = weights(FedFa(), ACC, (3, 1, 2))
    # the 1e-6 inside the logarithms shows in the sixth digit
    torch.testing.assert_close(found, vector(0.395866, 0.283396, 0.320738), atol=2e-6, rtol=0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_weights_are_those_of_the_formulas(alpha):
    rng = np.random.default_rng(0)
    accuracy, counts = rng.uniform(0.1, 1, 6).tolist(), rng.integers(1, 9, 6).tolist()
    wanted = torch.from_numpy(reference(accuracy, counts, alpha))
    found = weights(FedFa(alpha=alpha), accuracy, counts)
    torch.testing.assert_close(found, wanted, atol=3e-6, rtol=0)


def test_equal_accuracies_and_counts_are_uniform():
    torch.testing.assert_close(weights(FedFa(), (0.4,) * 3, (2, 2, 2)), vector(*[1 / 3] * 3))


def test_worse_accuracy_and_more_rounds_count_more():
    found = [float(weights(FedFa(), (a, 0.5, 0.7), (2, 2, 2))[0]) for a in (0.9, 0.5, 0.2)]
    assert found == sorted(found)
    found = [float(weights(FedFa(), ACC, (f, 2, 2))[0]) for f in (1, 2, 7)]
    assert found == sorted(found)


def test_a_client_alone_has_all_weight_and_no_accuracy_is_no_division():
    assert weights(FedFa(), (0.3,), (4,)).tolist() == [1.0]
    for accuracy in ((0.0, 0.0), (0.0, 1.0)):
        found = weights(FedFa(), accuracy, (1, 1))
        assert float(found.sum()) == pytest.approx(1)
        assert float(found.min()) >= 0


def test_counts_are_of_the_rounds_in_which_a_client_answered():
    script = Script([FedFa(alpha=0.0, gamma=0.0)])
    script.play(FIXTURE[[0, 2]], clients=[0, 2], accuracy=(0.9, 0.7))
    script.play(FIXTURE[[0]], clients=[0], accuracy=[0.9])
    before = script.server.x
    x = script.play(FIXTURE, accuracy=ACC)
    assert script.state("fedfa")["counts"].tolist() == [3, 1, 2]
    wanted = torch.from_numpy(reference(ACC, (3, 1, 2), 0.0))
    torch.testing.assert_close(x, before + wanted @ FIXTURE, atol=3e-6, rtol=0)


@pytest.mark.parametrize(
    ("momentum", "steps"),
    [
        # d alone, then d again, in units of d: M = 1/2, 3/4
        ("ema", (0.5, 0.75)),
        ("heavy", (1.0, 1.5)),
        # d - lr M with lr = 0.1
        ("easyfl", (0.95, 0.925)),
    ],
)
def test_momenta(momentum, steps):
    script = Script([FedFa(momentum=momentum)], lr=0.1)
    for step in steps:
        before = script.server.x
        x = script.play(FIXTURE[[1]], clients=[1], accuracy=[0.5])
        torch.testing.assert_close(x, before + step * FIXTURE[1])


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_accuracy_is_that_of_the_received_model_on_training_examples(unlike, engine):
    made = bench(unlike, "fedfa", solver=fp.Solver(lr=0.3, steps=2), model="linear", engine=engine)
    module = made.setup.layout.write(made.setup.module, made.server.x).eval()
    right = []
    for k in range(len(unlike)):
        inputs, target = unlike.train.client(k)
        right.append(float((module(inputs).argmax(1) == target).double().mean()))
    torch.testing.assert_close(made.advance().reports["fedfa"]["accuracy"], vector(*right))
