"""AAggFF: both of its forms against the formulas, and what they are invariant to."""

from __future__ import annotations

from math import erf, exp, log, sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scripted import FIXTURE, PRE, Script, matrix, vector

from fedparity.parts import AAggFF

CDFS = {
    "weibull": lambda x: 1 - exp(-(x**2)),
    "exponential": lambda x: 1 - exp(-x),
    "frechet": lambda x: exp(-1 / x),
    "normal": lambda x: (1 + erf((x - 1) / sqrt(2))) / 2,
    "gumbel": lambda x: exp(-exp(-(x - 1))),
    "logistic": lambda x: 1 / (1 + exp(-(x - 1))),
}
MOVES = FIXTURE[[0, 1, 2, 0]]
ROUNDS = (PRE, (0.1, 3.0, 2.9), (5.0, 0.2, 0.1), (1.0, 9.0, 0.3))


def mixture(script: Script) -> torch.Tensor:
    return script.state("aaggff")["mixture"]


@pytest.mark.parametrize("cdf", CDFS)
def test_distribution_functions(cdf):
    # the losses over their mean are 6/7, 12/7, 3/7
    wanted = [CDFS[cdf](x) for x in (6 / 7, 12 / 7, 3 / 7)]
    torch.testing.assert_close(AAggFF(cdf=cdf).response(vector(*PRE)), vector(*wanted))


def test_fixture_of_the_newton_form():
    script = Script([AAggFF()])
    x = script.play(FIXTURE, loss=PRE)
    wanted = vector(0.329529, 0.352315, 0.318156)
    torch.testing.assert_close(mixture(script), wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(x, vector(1, 2) + wanted @ FIXTURE, atol=1e-5, rtol=0)


def test_fixture_of_the_form_for_cohorts():
    script = Script([AAggFF()], n=(1, 1, 1, 1), cohort=2)
    x = script.play(FIXTURE[[0, 2]], clients=[0, 2], loss=(1.0, 3.0))
    wanted = vector(0.237413, 0.249837, 0.262912, 0.249837)
    torch.testing.assert_close(mixture(script), wanted, atol=1e-6, rtol=0)
    shares = vector(0.474518, 0.525482)
    torch.testing.assert_close(x, vector(1, 2) + shares @ FIXTURE[[0, 2]], atol=1e-6, rtol=0)


@pytest.mark.parametrize("cdf", ["normal", "weibull"])
def test_newton_steps_minimise_the_sum_of_the_paper(cdf):
    script, K = Script([AAggFF(cdf=cdf)]), 3
    p, past = np.full(K, 1 / K), []
    for losses in ROUNDS * 3:
        mean = sum(losses) / K
        r = np.array([CDFS[cdf](loss / mean) for loss in losses]) / K
        past.append((-r / (1 + p @ r), p))

        def objective(q, past=tuple(past)):
            terms = (g @ q + K / 8 * (g @ (q - old)) ** 2 for g, old in past)
            return sum(terms) + 2 * q @ q

        sums = {"type": "eq", "fun": lambda q: q.sum() - 1}
        found = minimize(
            objective, p, bounds=[(0, 1)] * K, constraints=sums, options={"ftol": 1e-15}
        )
        p = found.x
        script.play(FIXTURE, loss=losses)
        torch.testing.assert_close(mixture(script), vector(*p), atol=2e-6, rtol=0)


def test_steps_for_cohorts_are_those_of_the_formula():
    K, C = 4, 0.5
    script = Script([AAggFF(cdf="gumbel")], n=(3, 1, 1, 1), cohort=2)
    p, total = np.full(K, 1 / K), np.zeros(K)
    asked = [([0, 2], (1.0, 3.0)), ([1, 3], (0.5, 4.0)), ([0, 1], (2.0, 2.5))]
    for t, (clients, losses) in enumerate(asked, 1):
        mean_loss = sum(losses) / 2
        r = {k: C * CDFS["gumbel"](F / mean_loss) for k, F in zip(clients, losses, strict=True)}
        rbar = sum(r.values()) / 2
        full = np.array([rbar + ((r[k] - rbar) / C if k in r else 0) for k in range(K)])
        g = -full / (1 + rbar) + rbar * (p @ (full - rbar)) / (1 + rbar) ** 2
        total += g
        z = np.exp(-total * sqrt(log(K)) / ((2 + C) * sqrt(t + 1)))
        p = z / z.sum()
        before = script.server.x
        x = script.play(MOVES[clients], clients=clients, loss=losses)
        torch.testing.assert_close(mixture(script), vector(*p), rtol=1e-12, atol=0)
        wanted = before + vector(*(p[clients] / p[clients].sum())) @ MOVES[clients]
        torch.testing.assert_close(x, wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver", ["newton", "ftrl"])
def test_equal_losses_are_uniform_fedavg(solver):
    script = Script([AAggFF(solver=solver)])
    for _ in range(3):
        before = script.server.x
        x = script.play(FIXTURE, loss=(2.0, 2.0, 2.0))
        torch.testing.assert_close(x, before + FIXTURE.mean(0), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("solver", ["newton", "ftrl"])
def test_a_common_scale_of_losses_changes_nothing(solver):
    one, other = Script([AAggFF(solver=solver)]), Script([AAggFF(solver=solver)])
    for losses in ROUNDS:
        one.play(FIXTURE, loss=losses)
        x = other.play(FIXTURE, loss=[7 * loss for loss in losses])
    torch.testing.assert_close(x, one.server.x, rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver", ["newton", "ftrl"])
@pytest.mark.parametrize("cdf", CDFS)
def test_raising_a_clients_loss_does_not_lower_its_weight(solver, cdf):
    found = []
    for loss in (0.5, 1.0, 2.0, 8.0):
        script = Script([AAggFF(cdf=cdf, solver=solver)])
        script.play(FIXTURE, loss=(loss, 2.0, 0.5))
        found.append(float(mixture(script)[0]))
    assert found == sorted(found)


@pytest.mark.parametrize("solver", ["newton", "ftrl"])
def test_losses_of_zero_are_a_mixture(solver):
    script = Script([AAggFF(cdf="frechet", solver=solver)])
    x = script.play(FIXTURE, loss=(0.0, 0.0, 0.0))
    torch.testing.assert_close(x, vector(1, 2) + FIXTURE.mean(0), rtol=1e-12, atol=0)
    script.play(FIXTURE, loss=(0.0, 1.0, 0.0))
    assert bool(mixture(script).isfinite().all())
    assert float(mixture(script).sum()) == pytest.approx(1)


def test_a_hundred_clients_on_the_border_of_the_simplex():
    K = 100
    script = Script([AAggFF()], n=[1] * K)
    losses = [0.01] * 99 + [5.0]
    for _ in range(60):
        script.play(matrix(*[(0.0, 0.0)] * K), loss=losses)
    p = mixture(script)
    assert float(p.min()) >= 0
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    assert float(p[-1]) > float(p[0])


def test_where_the_mixture_leaves_nothing_to_those_who_answer_they_count_alike():
    rng = np.random.default_rng(0)
    served = np.array([0.05, 0.1, 0.2, 1.0, 2.0, 3.0])
    script = Script([AAggFF()], n=(1,) * 6)
    for _ in range(25):
        script.play(MOVES[[0, 1, 2] * 2], loss=served * np.exp(rng.normal(0, 0.1, 6)))
    before = script.server.x
    x = script.play(MOVES[:2], clients=[0, 1], loss=(0.05, 0.1))
    assert float(mixture(script)[:2].sum()) < 1e-12
    torch.testing.assert_close(x, before + MOVES[:2].mean(0))
