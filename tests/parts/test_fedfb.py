"""FedFB: examples reweighed by answer and group until all groups are told yes alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grouped import GROUPS, is_fedavg_by_size, losses, places, weighted_gradient
from logistic import batches, whole
from scripted import FIXTURE, Script, after, bench, matrix, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import FedFB

SHARE = torch.stack(
    [
        matrix((0.2, 0.4), (0.4, 0.0)),  # 10 and 20 say no, 20 and 0 yes, of 50
        matrix((0.4, 0.0), (0.6, 0.0)),
        matrix((0.2, 0.4), (0.0, 0.4)),
    ]
)
LOSS = torch.stack(
    [
        matrix((0.1, 0.2), (0.1, 0.0)),
        matrix((0.2, 0.0), (0.2, 0.0)),
        matrix((0.0, 0.2), (0.0, 0.6)),
    ]
)


def script(part: FedFB) -> Script:
    return Script([part], groups=GROUPS)


def no(made: Script):
    return made.state("fedfb")["no"]


def test_fixture():
    # Group a: m = 60, yes 20 + 15 = 35, losses of no 5 + 5 = 10, of yes 5 + 5 = 10:
    # P_a = (35 - 10 + 10) / 60. Group b: m = 40, yes 10, losses 10 + 5 = 15 and 15:
    # P_b = (10 - 15 + 15) / 40 = 1/4. So P_b - P_a = 1/4 - 7/12 = -1/3.
    made = script(FedFB(alpha=0.3))
    torch.testing.assert_close(
        made.play(FIXTURE, loss=LOSS, share=SHARE), vector(0.825, 1.8)
    )  # by size
    # b: 1 + 100 * 0.3 / 40 * (-1/3); a: 1 + 100 * 0.3 / 60 * 1/3
    torch.testing.assert_close(no(made), vector(1 + 1 / 6, 1 - 1 / 4))
    before = made.server.x
    moved = made.play(FIXTURE, loss=LOSS, share=SHARE) - before
    # Clients' sums of weights: no of a counts 7/6, yes 5/6; no of b 3/4, yes 5/4.
    sums = vector(10 * 7 / 6 + 20 * 5 / 6 + 20 * 3 / 4, 10 * 7 / 6 + 15 * 5 / 6, 0.0)
    sums[2] = 5 * 7 / 6 + 10 * 3 / 4 + 10 * 5 / 4
    torch.testing.assert_close(moved, (sums / sums.sum()) @ FIXTURE)
    # The second step is over the square root of 2.
    torch.testing.assert_close(
        no(made), vector(1 + (1 + 2**-0.5) / 6, 1 - (1 + 2**-0.5) / 4), rtol=1e-9, atol=0
    )


def test_weights_stay_between_0_and_2():
    made = script(FedFB(alpha=100.0))
    made.play(FIXTURE, loss=LOSS, share=SHARE)
    torch.testing.assert_close(no(made), vector(2.0, 0.0))


def test_groups_that_no_client_has_that_answers_stay():
    made = script(FedFB())
    made.play(FIXTURE[1:2], clients=[1], loss=LOSS[1:2], share=SHARE[1:2])
    torch.testing.assert_close(no(made), vector(1.0, 1.0))


def test_three_groups_move_against_the_first():
    told_yes, larger = vector(0.5, 0.7, 0.4), vector(2.0, 4.0, 4.0)
    found = FedFB(alpha=0.1).shifted(torch.ones(3).double(), told_yes, larger, round=4)
    # a step of 0.05: the first moves by minus 0.2 - 0.1
    torch.testing.assert_close(found, vector(1 - 0.01, 1 + 0.04, 1 - 0.02))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_without_a_step_it_is_fedavg_by_size(unlike, engine):
    is_fedavg_by_size(unlike, "fedfb(alpha=0)", engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("batch", [3, None])
def test_rounds_are_those_of_numpy(unlike, engine, batch):
    alpha, lr, positive = 0.5, 0.2, 2
    solver = fp.Solver(lr=lr, steps=3, batch=batch)
    text = f"fedfb(alpha={alpha}, positive={positive})"
    made = bench(unlike, text, solver=solver, model="linear", engine=engine)
    clients = range(len(unlike))
    data = [whole(made, k) for k in clients]
    n = np.array([len(y) for _, y in data])
    size = sum(np.bincount(places(one), minlength=2) for one in data)
    v, weights = made.x.numpy(), np.ones(2)

    def of(one):
        yes = one[1] == positive
        return np.where(yes, 2 - weights[places(one)], weights[places(one)])

    for round in range(1, 5):
        means = np.array([of(one).mean() for one in data])
        told_yes, ends = np.zeros(2), []
        for k in clients:
            y = v
            for one in batches(made, round, k):
                y = y - lr * weighted_gradient(y, one, of(one) / means[k])
            ends.append(y - v)
            yes = data[k][1] == positive
            wrong = losses(v, data[k])
            told_yes += np.bincount(places(data[k]), np.where(yes, 1 - wrong, wrong), 2)
        told_yes = told_yes / size
        p = n * means
        v = v + (p / p.sum()) @ np.array(ends)
        apart = told_yes[1] - told_yes[0]
        step = alpha / np.sqrt(round) * size.sum() / size * np.array([-apart, apart])
        weights = np.clip(weights + step, 0, 2)
        made.advance()
        np.testing.assert_allclose(made.server.x.numpy(), v, rtol=1e-11, atol=1e-13)
        found = made.server.parts["fedfb"]["no"].numpy()
        np.testing.assert_allclose(found, weights, rtol=1e-11, atol=1e-13)
    assert abs(weights - 1).max() > 0.05


def test_groups_are_told_yes_more_alike_than_by_fedavg():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=400)
    x = np.c_[rng.standard_normal(400), group]
    y = (x[:, 0] + 1.5 * group + 0.3 * rng.standard_normal(400) > 0.75).astype(np.int64)
    made = fp.Federation.from_arrays(
        x, y, np.arange(400) % 4, ["train"] * 400, groups={"sex": np.array(["f", "m"])[group]}
    )
    solver = fp.Solver(lr=0.5, steps=2)

    def apart(algorithm: str) -> float:
        found = after(bench(made, algorithm, solver=solver, model="linear"), 40).numpy()
        score = x @ found[:4].reshape(2, 2).T + found[4:]
        yes = score.argmax(1)
        return abs(yes[group == 1].mean() - yes[group == 0].mean())

    assert apart("fedavg") > 0.5
    assert apart("fedfb(group=sex, alpha=1)") < 0.3


@pytest.mark.parametrize("name", ["fedfb", "fairfed"])
def test_targets_that_are_no_answer_are_refused(name):
    made = fp.Federation.from_arrays(
        [[0.0], [1.0], [2.0]], [0.5, 1.5, 2.5], [0, 0, 1], groups={"group": ["a", "b", "a"]}
    )
    with pytest.raises(InputError, match=rf"'{name}' goes by .*: use a method that goes by losses"):
        fp.Experiment(made, "linear", name, lstar="none")
    fp.Experiment(made, "linear", "fedminmax", lstar="none")


@pytest.mark.parametrize("name", ["fedfb", "fairfed"])
def test_a_class_for_yes_that_is_not_there_is_refused(unlike, name):
    with pytest.raises(InputError, match=rf"'{name}' takes class 3 for yes, .* 0 to 2: name one"):
        fp.Experiment(unlike, "linear", f"{name}(positive=3)", lstar="none")
