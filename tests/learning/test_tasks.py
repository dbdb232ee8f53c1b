"""Losses, slopes and metrics of the tasks, and that every task trains on both engines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.learning import tasks
from fedparity.learning.task import slope_of
from fedparity.testing import Bench

RNG = np.random.default_rng(0)
N = 24
CLIENT = np.repeat(["a", "b", "c"], [4, 8, 12])
X = RNG.standard_normal((N, 4))
TARGETS = {
    "classification": (RNG.integers(0, 3, N), {}),
    "classification(weights=[1, 2, 0.5])": (RNG.integers(0, 3, N), {}),
    "binary": (RNG.integers(0, 2, N), {}),
    "multi_label": (RNG.integers(0, 2, (N, 3)), {"kind": "labels"}),
    "regression": (RNG.standard_normal((N, 2)), {}),
    "survival": (
        np.stack([RNG.random(N) * 6, RNG.integers(0, 2, N)], 1),
        {"kind": "survival", "outputs": 5},
    ),
}


def federation(name: str) -> fp.Federation:
    y, more = TARGETS[name]
    return fp.Federation.from_arrays(X, y, CLIENT, fractions=(0.5, 0, 0.5), **more)


@pytest.mark.parametrize("algorithm", ["eagle(lam=0.1)", "fedfv"])
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore:eagle")
def test_every_task_trains_alike_on_both_engines(name, algorithm):
    for model in ("linear", "mlp(hidden=3, layers=1)"):
        loop, vmap = (
            Bench(
                fp.Experiment(
                    federation(name),
                    tasks.read(name, model),
                    algorithm,
                    solver=fp.Solver(lr=0.2, epochs=1, batch=3),
                    lstar="best_validation(rounds=2)",
                    engine=engine,
                    dtype="float64",
                )
            )
            for engine in ("loop", "vmap")
        )
        start = loop.server.x
        for bench in (loop, vmap):
            bench.advance()
            bench.advance()
        assert not torch.equal(loop.server.x, start)
        torch.testing.assert_close(loop.server.x, vmap.server.x, rtol=0, atol=1e-12)


def test_metrics_of_all_examples_of_a_client_are_given_what_the_task_predicts():
    for name, metric in {"binary": "auc", "survival": "c_index"}.items():
        made = fp.Experiment(
            federation(name), tasks.read(name, "linear"), rounds=1, metrics=metric, lstar="none"
        )
        values = made.run().clients[f"test_{metric}"].dropna()
        assert len(values)
        assert values.between(0, 1).all()
    with pytest.raises(fp.InputError, match="'auc' is of classes, and the task is 'survival'"):
        fp.Experiment(federation("survival"), "linear", metrics="auc")


@pytest.mark.parametrize("name", TARGETS)
def test_a_slope_is_the_derivative_of_its_loss(name):
    task, data = tasks.read(name, "linear"), federation(name).train
    outputs = 1 if name == "binary" else federation(name).outputs
    output = torch.randn(len(data), outputs, dtype=torch.float64, requires_grad=True)
    (slow,) = torch.autograd.grad(task.losses(output, data.y).sum(), output)
    slope = slope_of(task)
    assert slope is not None
    torch.testing.assert_close(slope(output.detach()[None], data.y[None])[0], slow)


@pytest.mark.parametrize("name", TARGETS)
def test_a_task_is_named_by_its_text(name):
    assert (
        tasks.read(tasks.read(name, "linear").text, "linear").text == tasks.read(name, "mlp").text
    )


def test_the_usual_task_follows_from_the_kind_of_data():
    made = {name: tasks.usual(federation(name).kind) for name in TARGETS if "(" not in name}
    assert made == {name: name for name in made} | {"binary": "classification"}


def test_class_weights_multiply_the_loss_of_their_class():
    output, target = torch.zeros(2, 3), torch.tensor([0, 1])
    weighted = fp.Classification("linear", weights=(1, 2, 0.5)).losses(output, target)
    assert weighted.tolist() == pytest.approx([math.log(3), 2 * math.log(3)])


def test_one_output_of_z_is_two_outputs_that_differ_by_z():
    z, target = torch.tensor([[-1.0], [0.5], [2.0]]), torch.tensor([0, 1, 0])
    one = fp.Binary("linear").losses(z, target)
    two = fp.Classification("linear").losses(torch.cat([torch.zeros(3, 1), z], 1), target)
    torch.testing.assert_close(one, two)
    assert fp.Binary("linear").metrics(z, target)["accuracy"].tolist() == [1, 1, 0]


def test_labels_are_right_one_by_one_and_all_at_once():
    output = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    found = fp.MultiLabel("linear").metrics(output, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert found["accuracy"].tolist() == [1.0, 0.5]
    assert found["exact"].tolist() == [1.0, 0.0]


def test_survival_is_the_likelihood_of_the_interval():
    # Hazards of one half: 1.7 intervals end in the second, after the first was survived.
    task, output = fp.Survival("linear"), torch.zeros(3, 3)
    target = torch.tensor([[1.7, 1.0], [1.7, 0.0], [9.0, 1.0]])
    # event: ln 2 (survived 0) + ln 2 (fell in 1); censored: survived 0; beyond the last: all three
    ln2 = math.log(2)
    assert task.losses(output, target).tolist() == pytest.approx([2 * ln2, ln2, 3 * ln2])
    # S = 1/2, 1/4, 1/8. Event: alive after 0, not after 1 and 2.
    error = task.metrics(output, target)["status_error"].tolist()
    assert error[0] == pytest.approx((0.5**2 + 0.25**2 + 0.125**2) / 3)
    assert error[1] == pytest.approx(0.5**2)
    assert task.predictions(output).tolist() == pytest.approx([0.875] * 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clasification", "did you mean 'classification'"),
        ("binary(weights=[1,2])", "unknown setting of binary 'weights'"),
        ("classification(weights=[1,-2])", "one number above 0 a class"),
    ],
)
def test_a_wrong_task_is_told_in_one_line(text, message):
    with pytest.raises(fp.InputError, match=message):
        tasks.read(text, "linear")


@pytest.mark.parametrize(
    ("y", "kind", "message"),
    [
        (np.zeros((3, 2), int), None, "say kind='values', 'labels', 'tokens' or 'survival'"),
        (np.full((3, 2), 2), "labels", "are 0 or 1"),
        (np.full((3, 2), 2), "survival", "a time from 0 and an event"),
        (np.full((3, 2), 0.5), "tokens", "whole numbers from 0"),
        ([0.0, np.nan, 1.0], "survival", "numbers in rows"),
        ([0, 1, 2], "word", "kind should be .classes., .*, got .word."),
    ],
)
def test_targets_of_a_wrong_kind_are_told_in_one_line(y, kind, message):
    with pytest.raises(fp.InputError, match=message):
        fp.Federation.from_arrays(np.zeros((3, 1)), y, [0, 0, 0], kind=kind)


def test_class_weights_must_be_as_many_as_classes():
    with pytest.raises(fp.InputError, match="2 weights for 3 classes"):
        fp.Classification(nn.Identity, weights=(1, 2)).build((3,), 3, 0, torch.float32)


@pytest.mark.parametrize("ties", [False, True])
def test_what_is_right_is_the_same_of_outputs_that_lie_class_by_class(ties):
    rng = torch.Generator().manual_seed(0)
    output, target = torch.randn(50, 4, generator=rng), torch.arange(50) % 4
    if ties:
        output = output.round()
        output[7] = 0.0
        output[8, 1] = torch.nan
    by_class = output.mT.contiguous().mT
    task = fp.Classification("linear")
    found, wanted = (task.metrics(o, target)["accuracy"] for o in (by_class, output))
    assert torch.equal(found, wanted)
    assert 0 < float(wanted.mean()) < 1
