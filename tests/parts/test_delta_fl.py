"""Delta-FL: the tail of the losses trains, the others rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import after, bench, parabolas, vector

import fedparity as fp
from fedparity.parts import DeltaFL

SIZES = vector(0.5, 0.25, 0.25)
LOSSES = vector(1.0, 2.0, 0.5)
ONE = fp.Solver(lr=0.1, steps=1)
# losses at x = 0: 1, 4, 9, 16; gradients -2, -4, 6, 8
TOY = parabolas([[1.0]] * 4, [[1.0], [2.0], [-3.0], [-4.0]])


@pytest.mark.parametrize(
    ("theta", "tail"),
    [
        (1.0, (1, 1, 1)),
        (0.8, (1, 1, 1)),  # 0.25 of the weight is at 0.5: 0.2 is reached there
        (0.5, (1, 1, 0)),  # 0.5 is reached at 1, where 0.75 is
        (0.25, (1, 1, 0)),  # and so is 0.75 itself
        (0.2, (0, 1, 0)),
        (1e-9, (0, 1, 0)),
    ],
)
def test_the_tail_begins_at_the_quantile(theta, tail):
    assert DeltaFL(theta=theta).shares(LOSSES, SIZES).tolist() == list(tail)


def test_the_quantile_is_that_of_losses_repeated_by_examples():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, losses = rng.integers(1, 9, 6), rng.random(6)
        theta = float(rng.uniform(0.01, 1))
        repeated = np.sort(np.repeat(losses, n))
        quantile = repeated[max(0, int(np.ceil(n.sum() * (1 - theta) - 1e-9)) - 1)]
        p = torch.from_numpy(n / n.sum())
        found = DeltaFL(theta=theta).shares(torch.from_numpy(losses), p)
        assert found.tolist() == (losses >= quantile).tolist()


def test_exactly_the_share_theta_of_the_weight_is_in_the_exact_tail():
    for theta in (0.1, 0.25, 0.3, 0.5, 0.6, 1.0):
        found = DeltaFL(theta=theta, exact_boundary=True).shares(LOSSES, SIZES)
        assert float(found @ SIZES) == pytest.approx(theta)
    # 0.5 = 0.25 (the worst) + 0.25, half of the first client's weight
    found = DeltaFL(theta=0.5, exact_boundary=True).shares(LOSSES, SIZES)
    torch.testing.assert_close(found, vector(0.5, 1, 0))


def test_the_exact_tail_is_the_superquantile_in_its_dual_form():
    # max of sum pi_k F_k over pi_k <= p_k / theta is attained greedily from the worst client on
    theta, left, value = 0.6, 1.0, 0.0
    for k in (1, 0, 2):
        share = min(left, float(SIZES[k]) / theta)
        value, left = value + share * float(LOSSES[k]), left - share
    found = DeltaFL(theta=theta, exact_boundary=True).shares(LOSSES, SIZES)
    assert float(found * SIZES @ LOSSES) / theta == pytest.approx(value)


def test_clients_of_equal_losses_share_what_is_left():
    part = DeltaFL(theta=0.5, exact_boundary=True)
    found = part.shares(vector(2.0, 2.0, 2.0, 5.0), torch.full((4,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(found, vector(1 / 3, 1 / 3, 1 / 3, 1))
    plain = DeltaFL(theta=0.1).shares(vector(2.0, 5.0, 5.0), SIZES)
    assert plain.tolist() == [0, 1, 1]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("delta_fl(theta=1)", (-2 - 4 + 6 + 8) / 4),
        ("delta_fl(theta=0.3)", (6 + 8) / 2),
        ("delta_fl(theta=0.3, exact_boundary=true)", (0.05 * 6 + 0.25 * 8) / 0.3),
        ("delta_fl(theta=0.01)", 8.0),
    ],
)
def test_only_the_tail_moves_the_model(text, mean, engine):
    made = bench(TOY, text, [0.0], solver=ONE, engine=engine)
    torch.testing.assert_close(after(made), vector(-0.1 * mean), rtol=1e-12, atol=1e-15)


def test_those_who_rest_are_not_asked_to_train():
    made = bench(TOY, "delta_fl(theta=0.3)", [0.0], solver=ONE)
    asked, door = [], made.door.ask

    def watched(down, cohort):
        asked.append((down.phase, cohort.tolist()))
        return door(down, cohort)

    made.door.ask = watched
    made.advance()
    assert asked == [("probe", [0, 1, 2, 3]), ("train", [2, 3])]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_what_other_parts_send_to_each_goes_to_those_who_train(engine):
    # gifair's multipliers of the second round: at x = -0.7 the losses are 2.89, 7.29, 5.29, 10.89
    made = bench(
        TOY, "gifair(apply=gradient)+delta_fl(theta=0.3)", [0.0], solver=ONE, engine=engine
    )
    x = float(after(made))
    assert x == pytest.approx(-0.7)
    # clients 2 and 3 have told 9 and 16 in the first round: ranks -1 and 1 of those known, and
    # kappa / (K - 1) = 1/6; now the tail is 1 (2.7^2 = 7.29, never heard: no rank) and 3
    gradients = (2 * (x - 2) * 1, 2 * (x + 4) * (1 + 1 / 6))
    torch.testing.assert_close(
        after(made), vector(x - 0.1 * sum(gradients) / 2), rtol=1e-12, atol=0
    )


def test_theta_one_costs_no_exchange():
    made = bench(TOY, "delta_fl(theta=1)", [0.0], solver=ONE)
    phases, door = [], made.door.ask
    made.door.ask = lambda down, cohort: (phases.append(down.phase), door(down, cohort))[1]
    made.advance()
    assert phases == ["train"]


def test_a_run_says_who_was_asked_and_who_trained(unlike, tmp_path):
    solver = fp.Solver(lr=0.1, steps=1)
    known = {"rounds": 3, "solver": solver, "lstar": "none"}
    result = fp.Experiment(unlike, "linear", "delta_fl(theta=0.2)", **known).run()
    assert result.clients["rounds_answered"].sum() < 3 * len(unlike)
