"""FedMinMax: the worst mixture of groups that lie across clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grouped import (
    COUNTS,
    GROUPS,
    asked,
    is_fedavg_by_size,
    losses,
    places,
    regrouped,
    weighted_gradient,
)
from logistic import batches, whole
from scripted import FIXTURE, Script, after, bench, matrix, vector

import fedparity as fp
from fedparity.engines.kernels.chain import Chain
from fedparity.errors import InputError
from fedparity.method import Grouping
from fedparity.parts import FedMinMax
from fedparity.toolbox import project

LOSS = matrix((0.6, 0.8), (1.0, 0.0), (0.2, 1.6))
"""Losses of 1 in group a and 2 in group b, times the group's share of the client."""


def mu(script: Script):
    return script.state("fedminmax")["mu"]


def script(part: FedMinMax) -> Script:
    return Script([part], groups=GROUPS)


def test_the_groups_begin_with_their_shares_and_clients_by_size():
    made = script(FedMinMax())
    torch.testing.assert_close(mu(made), vector(0.6, 0.4))
    torch.testing.assert_close(made.play(FIXTURE, loss=LOSS), vector(0.825, 1.8))


def test_fixture():
    made = script(FedMinMax(eta=0.1))
    before = made.play(FIXTURE, loss=LOSS)
    # (0.6, 0.4) + 0.1 (1, 2) minus its mean excess 0.3 / 2
    torch.testing.assert_close(mu(made), vector(0.55, 0.45))
    # An example of a counts 0.55 / 0.6 times, one of b 0.45 / 0.4 times: the clients' sums are
    # 27.5 + 22.5, 22.91667 and 4.58333 + 22.5, together 100.
    weights = vector(0.5, 0.2291667, 0.2708333)
    moved = made.play(FIXTURE, loss=LOSS) - before
    torch.testing.assert_close(moved, weights @ FIXTURE, rtol=1e-6, atol=1e-8)


def test_what_is_sent_is_over_its_mean_at_the_client_or_as_it_is():
    for part, wanted in (
        (FedMinMax(eta=0.1), [[11 / 12, 1.125], [1.0, 27 / 22], [0.846154, 1.038462]]),
        (FedMinMax(eta=0.1, apply="loss"), [[11 / 12, 1.125]] * 3),
    ):
        made = script(part)
        made.play(FIXTURE, loss=LOSS)
        sent = part.plan(made.state("fedminmax"), {}, asked(made)).each["weights"]
        torch.testing.assert_close(sent, matrix(*wanted), rtol=1e-5, atol=0)
        kept = (sent * COUNTS).sum(1) / COUNTS.sum(1)
        assert (part.apply == "update") == torch.allclose(kept, torch.ones(3).double())


def test_with_the_paper_s_loss_clients_count_by_size():
    made = script(FedMinMax(eta=0.5, apply="loss"))
    before = made.play(FIXTURE, loss=LOSS)
    again = made.play(FIXTURE, loss=LOSS) - before
    torch.testing.assert_close(again, vector(0.5, 0.25, 0.25) @ FIXTURE)


def test_a_group_that_nobody_answered_for_keeps_its_weight():
    made = script(FedMinMax(eta=0.1))
    made.play(FIXTURE[1:2], clients=[1], loss=LOSS[1:2])
    torch.testing.assert_close(mu(made), vector(0.6, 0.4))


def test_a_group_without_training_examples_changes_nothing():
    more = Grouping(("a", "b", "c"), torch.cat([COUNTS, torch.zeros(3, 1, dtype=torch.int64)], 1))
    made = Script([FedMinMax(eta=0.1)], groups={"group": more})
    for _ in range(2):
        made.play(FIXTURE, loss=torch.cat([LOSS, torch.zeros(3, 1)], 1))
    other = script(FedMinMax(eta=0.1))
    for _ in range(2):
        other.play(FIXTURE, loss=LOSS)
    torch.testing.assert_close(made.server.x, other.server.x)
    assert float(mu(made)[2]) == 0


def test_a_client_drawn_twice_counts_twice():
    twice = script(FedMinMax(eta=0.3))
    doubled = Grouping(("a", "b"), COUNTS * torch.tensor([[2], [1], [1]]))
    once = Script([FedMinMax(eta=0.3)], n=(100, 25, 25), groups={"group": doubled})
    once.server.parts["fedminmax"]["mu"] = mu(twice)
    x = twice.play(FIXTURE, times=(2, 1, 1), loss=LOSS)
    torch.testing.assert_close(x, once.play(FIXTURE, loss=LOSS))
    torch.testing.assert_close(mu(twice), mu(once))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("apply", ["update", "loss"])
def test_one_group_is_fedavg_by_size(unlike, apply, engine):
    one = regrouped(unlike, ("all",), lambda split: np.zeros(len(split)))
    is_fedavg_by_size(one, f"fedminmax(eta=0.7, apply={apply})", engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_each_client_its_own_group_is_afl_by_size(unlike, engine):
    own = regrouped(unlike, unlike.names, lambda split: split.owner.numpy())
    known = {"solver": fp.Solver(lr=0.1, steps=3, batch=4), "model": "mlp(hidden=4)"}
    found = bench(own, "fedminmax(eta=0.5)", engine=engine, **known)
    wanted = bench(own, "afl(eta=0.5, initial=size)", engine=engine, **known)
    for _ in range(4):
        found.advance(), wanted.advance()
    torch.testing.assert_close(found.server.x, wanted.server.x, rtol=1e-11, atol=1e-13)
    mixture = wanted.server.parts["afl"]["mixture"]
    torch.testing.assert_close(found.server.parts["fedminmax"]["mu"], mixture)
    start = torch.from_numpy(own.train.sizes / own.train.sizes.sum())
    assert float((mixture - start).abs().max()) > 0.05


def test_one_full_step_is_the_same_in_the_loss_as_in_the_update(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=1), "model": "mlp(hidden=4)"}
    both = [
        after(bench(unlike, f"fedminmax(eta=0.5, apply={apply})", **known), 4)
        for apply in ("update", "loss")
    ]
    torch.testing.assert_close(*both, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("apply", ["update", "loss"])
@pytest.mark.parametrize("batch", [3, None])
def test_rounds_are_those_of_numpy(unlike, apply, engine, batch):
    eta, lr = 1.5, 0.2
    solver = fp.Solver(lr=lr, steps=3, batch=batch)
    text = f"fedminmax(eta={eta}, apply={apply})"
    made = bench(unlike, text, solver=solver, model="linear", engine=engine)
    clients = range(len(unlike))
    data = [whole(made, k) for k in clients]
    n = np.array([len(y) for _, y in data])
    counts = np.array([np.bincount(places(one), minlength=2) for one in data])
    rho = counts.sum(0) / n.sum()
    v, weights = made.x.numpy(), rho
    for round in range(1, 4):
        w = weights / rho
        means = counts @ w / n
        ends, sums = [], np.zeros(2)
        for k in clients:
            each = w / means[k] if apply == "update" else w
            y = v
            for one in batches(made, round, k):
                y = y - lr * weighted_gradient(y, one, each[places(one)])
            ends.append(y - v)
            sums += np.bincount(places(data[k]), losses(v, data[k]), 2)
        p = n * (means if apply == "update" else 1)
        v = v + (p / p.sum()) @ np.array(ends)
        weights = project(torch.from_numpy(weights + eta * sums / counts.sum(0))).numpy()
        made.advance()
        np.testing.assert_allclose(made.server.x.numpy(), v, rtol=1e-11, atol=1e-13)
        found = made.server.parts["fedminmax"]["mu"].numpy()
        np.testing.assert_allclose(found, weights, rtol=1e-11, atol=1e-13)
    assert abs(weights - rho).max() > 0.05


def test_the_worst_group_is_served_better_than_by_fedavg():
    # One weight, x: group a wants 0, the smaller group b wants 1; the minimax point is 1/2.
    x = np.ones((10, 1))
    y = np.r_[np.zeros(8), np.ones(2)]
    group = ["a"] * 8 + ["b"] * 2
    made = fp.Federation.from_arrays(
        x, y, np.arange(10) % 2, ["train"] * 10, kind="values", groups={"group": group}
    )
    solver = fp.Solver(lr=0.2, steps=2)
    known = {"solver": solver, "weighting": "size"}
    assert float(after(bench(made, "fedavg", [0.0], **known), 100)) == pytest.approx(0.2, abs=1e-6)
    found = after(bench(made, "fedminmax(eta=0.02)", [0.0], **known), 400)
    assert float(found) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ({}, r"'fedminmax' goes by groups inside clients, .* \(groups=\['sex'\]\)"),
        ({"sex": ["f"] * 4}, r"the federation has sex: write fedminmax\(group=sex\)"),
    ],
)
def test_a_federation_without_such_groups_is_refused_with_the_remedy(groups, told):
    x, y, client = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], ["a", "a", "b", "b"]
    made = fp.Federation.from_arrays(x, y, client, groups=groups)
    with pytest.raises(InputError, match=told) as refused:
        fp.Experiment(made, "linear", "fedminmax", lstar="none")
    assert "\n" not in str(refused.value)
    if groups:
        fp.Experiment(made, "linear", "fedminmax(group=sex)", lstar="none")


def test_weights_of_examples_stay_in_the_products_of_linear_layers(unlike):
    for text in ("fedminmax", "fedfb"):
        made = bench(unlike, text, solver=fp.Solver(lr=0.1, steps=1), model="linear", engine="vmap")
        assert Chain.of(made.setup) is not None
