"""GIFAIR-FL: multipliers by rank."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, PRE, Script, after, bench, parabolas, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import Gifair

TOY = parabolas([[1.0], [1.0], [1.0]], [[0.0], [2.0], [-1.0]])
ONE = fp.Solver(lr=0.1, steps=1)


def test_fixture():
    # p = (.5, .25, .25) and ranks (0, 2, -2): lambda_max = .25/2, half of it; 1 + .0625 r / p
    torch.testing.assert_close(Gifair.ranks(vector(*PRE)), vector(0, 2, -2))
    x = Script([Gifair(kappa=0.5)]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(1, 2) + vector(0.5, 0.375, 0.125) @ FIXTURE)


def test_the_largest_loss_gets_the_number_of_others_and_so_on():
    found = Gifair.ranks(vector(3.0, 9.0, 1.0, 5.0))
    assert found.tolist() == [-1, 3, -3, 1]
    assert Gifair.ranks(vector(2.0, 2.0, 5.0)).tolist() == [-1, -1, 2]


def test_equal_losses_are_fedavg():
    x = Script([Gifair()]).play(FIXTURE, loss=(2.0, 2.0, 2.0))
    torch.testing.assert_close(x, vector(0.825, 1.8))


def test_the_last_known_losses_of_absent_clients_count():
    script = Script([Gifair(kappa=0.5)])
    script.play(FIXTURE, loss=PRE)
    before = script.server.x
    # client 0 has now the least loss of (0.1, 2, 0.5), client 2 the second
    x = script.play(FIXTURE[[0, 2]], clients=[0, 2], loss=(0.1, 0.5))
    wanted = vector(2 / 3 * (1 - 0.0625 * 2 / 0.5), 1 / 3) @ FIXTURE[[0, 2]]
    torch.testing.assert_close(x, before + wanted)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_on_gradients_the_ranks_of_the_round_before_count(engine):
    # losses at 0.5: 0.25, 2.25, 2.25; gradients 1, -3, 3; the first round has no ranks
    made = bench(TOY, "gifair(apply=gradient)", [0.5], solver=ONE, engine=engine)
    x = after(made)
    torch.testing.assert_close(x, vector(0.5 - 0.1 / 3))
    # ranks (-2, 1, 1); kappa (1/3) / 2 / (1/3) = 1/4: multipliers 1/2, 5/4, 5/4
    x = float(x)
    gradients = (2 * x, 2 * (x - 2), 2 * (x + 1))
    mean = sum(m * g for m, g in zip((0.5, 1.25, 1.25), gradients, strict=True)) / 3
    torch.testing.assert_close(after(made), vector(x - 0.1 * mean), rtol=1e-12, atol=0)


def test_one_step_descends_the_objective_with_its_absolute_differences():
    # d/dx of sum F_k / 3 + lambda sum |F_i - F_j| at 0.7, lambda = 0.5 (1/3) / 2, by differences
    def objective(x: float) -> float:
        losses = [x**2, (x - 2) ** 2, (x + 1) ** 2]
        pairs = [abs(losses[i] - losses[j]) for i in range(3) for j in range(i)]
        return sum(losses) / 3 + sum(pairs) / 12

    slope = (objective(0.7 + 1e-6) - objective(0.7 - 1e-6)) / 2e-6
    x = after(bench(TOY, "gifair", [0.7], solver=ONE))
    assert float(x) == pytest.approx(0.7 - 0.1 * slope, abs=1e-8)


def test_multipliers_stay_positive():
    script = Script([Gifair(kappa=0.999)], n=(1, 7, 2))
    before = script.server.x
    least = script.play(FIXTURE, loss=(0.0, 1.0, 2.0)) - before
    weights = torch.linalg.lstsq(FIXTURE.T[:, 1:], least - 0.1 * 1e-3 * FIXTURE[0]).solution
    torch.testing.assert_close(weights, vector(0.7, 0.2 + 0.999 * 0.1))


def test_adam_would_undo_a_weight_on_the_gradient(unlike):
    solver = fp.Solver(lr=0.1, steps=1, optimizer="adam")
    with pytest.raises(InputError, match="undoes a weight"):
        bench(unlike, "gifair(apply=gradient)", solver=solver, model="linear")


def test_two_weightings_of_one_kind_are_refused():
    with pytest.raises(InputError, match="would overwrite"):
        fp.algorithm("gifair+qffl")
