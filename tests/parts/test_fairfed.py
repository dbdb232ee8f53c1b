"""FairFed: clients whose group gap is like the whole federation's count more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grouped import COUNTS, GROUPS, is_fedavg_by_size, places
from logistic import batches, gradient, probabilities, whole
from scripted import FIXTURE, Script, bench, matrix, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.method import Grouping
from fedparity.parts import FairFed

RATES = torch.stack(
    [
        # Of the client's examples those in question by group, and those told yes.
        matrix((0.2, 0.2), (0.1, 0.05)),  # 1/2 and 1/4: a gap of 1/4
        matrix((0.4, 0.0), (0.4, 0.0)),  # no example of b: undefined
        matrix((0.2, 0.4), (0.1, 0.4)),  # 1/2 and 1: a gap of -1/2
    ]
)
ACCURACY = (0.7, 0.5, 0.9)


def script(part: FairFed, groups=GROUPS) -> Script:
    return Script([part], groups=groups)


def weights(made: Script):
    return made.state("fairfed")["weights"]


def test_fixture():
    made = script(FairFed(beta=0.1))
    x = made.play(FIXTURE, rates=RATES, accuracy=ACCURACY)
    # All together: a 10 + 10 + 5 = 25 in question, of whom 5 + 10 + 2.5 told yes: 0.7; b 10 + 10,
    # of whom 2.5 + 10: 0.625. M = 0.075. Accuracy 0.35 + 0.125 + 0.225 = 0.7.
    apart = np.array([0.25 - 0.075, 0.7 - 0.5, 0.575])
    wanted = np.array([0.5, 0.25, 0.25]) - 0.1 * (apart - apart.mean())
    torch.testing.assert_close(weights(made), vector(*wanted))
    torch.testing.assert_close(x - vector(1.0, 2.0), vector(*wanted) @ FIXTURE)
    assert made.algorithm.parts[0].tell(made.state("fairfed"))["group_gap"] == pytest.approx(0.075)


def test_which_group_is_compared_does_not_matter_when_there_are_two():
    found = []
    for versus in (None, "a", "b"):
        made = script(FairFed(beta=0.1, versus=versus))
        made.play(FIXTURE, rates=RATES, accuracy=ACCURACY)
        found.append(weights(made))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


def test_one_group_is_compared_with_all_others_together():
    # b in two halves is b.
    rates = torch.cat([RATES[..., :1], RATES[..., 1:] / 2, RATES[..., 1:] / 2], -1)
    counts = torch.cat([COUNTS[:, :1], COUNTS[:, 1:] // 2, COUNTS[:, 1:] // 2], 1)
    three = {"group": Grouping(("a", "b", "c"), counts)}
    made, two = script(FairFed(beta=0.1, versus="a"), three), script(FairFed(beta=0.1))
    made.play(FIXTURE, rates=rates, accuracy=ACCURACY)
    two.play(FIXTURE, rates=RATES, accuracy=ACCURACY)
    torch.testing.assert_close(weights(made), weights(two))


def test_where_no_gap_is_defined_all_go_by_accuracy():
    made = script(FairFed(beta=0.1))
    rates = torch.stack([RATES[1]] * 3)
    made.play(FIXTURE, rates=rates, accuracy=ACCURACY)
    apart = np.array([0.0, 0.2, 0.2])
    wanted = np.array([0.5, 0.25, 0.25]) - 0.1 * (apart - apart.mean())
    torch.testing.assert_close(weights(made), vector(*wanted))


def test_no_weight_falls_below_0_and_their_sum_stays():
    made = script(FairFed(beta=10.0))
    for _ in range(3):
        made.play(FIXTURE, rates=RATES, accuracy=ACCURACY)
    assert float(weights(made).min()) == 0
    assert float(weights(made).sum()) == pytest.approx(1)


def test_the_weights_of_absent_clients_stay():
    made = script(FairFed(beta=0.1))
    made.play(FIXTURE[:2], clients=[0, 1], rates=RATES[:2], accuracy=ACCURACY[:2])
    assert float(weights(made)[2]) == 0.25
    assert float(weights(made)[:2].sum()) == pytest.approx(0.75)
    assert float(weights(made)[0]) != 0.5


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_with_beta_0_it_is_fedavg_by_size(unlike, engine):
    is_fedavg_by_size(unlike, "fairfed(beta=0)", engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("metric", ["equal_opportunity", "statistical_parity"])
def test_rounds_are_those_of_numpy(unlike, metric, engine):
    beta, lr, positive = 0.015, 0.3, 2
    text = f"fairfed(beta={beta}, metric={metric}, positive={positive})"
    solver = fp.Solver(lr=lr, steps=2, batch=3)
    made = bench(unlike, text, solver=solver, model="linear", engine=engine)
    clients = range(len(unlike))
    data = [whole(made, k) for k in clients]
    n = np.array([len(y) for _, y in data])
    v, p = made.x.numpy(), n / n.sum()

    def gap(pairs):
        rates = []
        for group in (0, 1):
            asked = sum(((places(one) == group) & counted(one)).sum() for one, _ in pairs)
            yes = sum(
                ((places(one) == group) & counted(one) & (said == positive)).sum()
                for one, said in pairs
            )
            rates.append(yes / asked if asked else np.nan)
        return rates[0] - rates[1]

    def counted(one):
        return one[1] == positive if metric == "equal_opportunity" else one[1] >= 0

    undefined, seen = 0, 0.0
    for round in range(1, 5):
        said = [probabilities(v, x).argmax(1) for x, _ in data]
        pairs = list(zip(data, said, strict=True))
        right = np.array([(s == one[1]).mean() for one, s in pairs])
        whole_gap, gaps = gap(pairs), np.array([gap([pair]) for pair in pairs])
        undefined += np.isnan(gaps).sum()
        seen = max(seen, abs(whole_gap))
        by_accuracy = abs(right - right @ n / n.sum())
        apart = np.where(np.isnan(gaps), by_accuracy, abs(gaps - whole_gap))
        p = p - beta * (apart - apart.mean())
        ends = []
        for k in clients:
            y = v
            for one in batches(made, round, k):
                y = y - lr * gradient(y, one)
            ends.append(y - v)
        v = v + (p / p.sum()) @ np.array(ends)
        made.advance()
        np.testing.assert_allclose(made.server.x.numpy(), v, rtol=1e-11, atol=1e-13)
        found = made.server.parts["fairfed"]["weights"].numpy()
        np.testing.assert_allclose(found, p, rtol=1e-11, atol=1e-13)
    assert undefined
    assert seen > 0.1
    assert undefined < 4 * len(n)
    assert (p > 0).all()


@pytest.mark.parametrize(
    ("names", "settings", "told"),
    [
        (("a", "b", "c"), {}, r"has 3 \(a, b, c\): name one .* \(versus=a\)"),
        (("a",), {}, r"has 1 \(a\): take another kind of groups"),
        (("a", "b"), {"versus": "z"}, "z"),
    ],
)
def test_what_cannot_be_compared_is_refused(names, settings, told):
    groups = {"group": Grouping(names, torch.ones(3, len(names), dtype=torch.int64))}
    with pytest.raises(InputError, match=told):
        script(FairFed(**settings), groups)
