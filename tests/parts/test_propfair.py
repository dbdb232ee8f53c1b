"""PropFair: the slope of its loss, its limits and one step by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import after, bench, parabolas, vector

import fedparity as fp
from fedparity.parts import PropFair

SOLVER = fp.Solver(lr=0.05, steps=1)
CURVES, MINIMA = [[1.0, 2.0], [0.5, 3.0], [2.0, 0.1]], [[1.0, 0.0], [-1.0, 2.0], [0.5, -3.0]]


def value_and_slope(part: PropFair, loss: float) -> tuple[float, float]:
    at = torch.tensor(loss, dtype=torch.float64, requires_grad=True)
    value = part.disutility(at)
    return float(value.detach()), float(torch.autograd.grad(value, at)[0])


def test_fixture():
    # -log(1 - 1/2) and 1 / (2 - 1)
    assert value_and_slope(PropFair(M=2.0), 1.0) == pytest.approx((0.693147, 1.0), abs=1e-6)


@pytest.mark.parametrize("M", [2.0, 0.2])
def test_the_tangent_goes_on_in_value_and_slope(M):
    part = PropFair(M=M, eps=0.2)
    knee = M - 0.2
    (below, slope), (above, other) = (value_and_slope(part, knee + s) for s in (-1e-9, 1e-9))
    assert below == pytest.approx(above, abs=1e-7)
    assert slope == pytest.approx(other, rel=1e-7)
    assert value_and_slope(part, knee + 4.0)[1] == pytest.approx(5.0)


def test_the_lines_of_the_code_have_their_own_slopes():
    assert value_and_slope(PropFair(M=2.0, beyond="loss_over_eps"), 3.0) == pytest.approx((15, 5))
    assert value_and_slope(PropFair(M=2.0, beyond="loss_over_M"), 3.0) == pytest.approx((1.5, 0.5))
    for beyond in ("loss_over_eps", "loss_over_M"):
        inside = value_and_slope(PropFair(M=2.0, beyond=beyond), 1.5)
        assert inside == pytest.approx((np.log(4), 2))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("M", "eps"), [(9.0, 0.2), (1.0, 0.5)])
def test_one_step_is_that_of_the_formula(M, eps, engine):
    x = np.array([0.3, -0.4])
    c, m = np.array(CURVES), np.array(MINIMA)
    losses, gradients = (c * (x - m) ** 2).sum(1), 2 * c * (x - m)
    slopes = np.where(M - losses >= eps, 1 / (M - losses), 1 / eps)
    assert (slopes > 0).all()
    wanted = x - 0.05 * (slopes[:, None] * gradients).mean(0)
    text = f"propfair(M={M}, eps={eps})"
    made = bench(parabolas(CURVES, MINIMA), text, x.tolist(), solver=SOLVER, engine=engine)
    torch.testing.assert_close(after(made), vector(*wanted), rtol=1e-12, atol=1e-13)


def test_the_sum_of_logarithms_is_what_it_climbs():
    # log(2 - F_1) + log(2 - F_2) with F_1 = x^2 and F_2 = 3 (x - 1)^2 is largest where
    # x / (2 - x^2) = 3 (1 - x) / (2 - 3 (1 - x)^2), found by bisection
    low, high = 0.4, 1.0
    for _ in range(60):
        x = (low + high) / 2
        uphill = x / (2 - x**2) > 3 * (1 - x) / (2 - 3 * (1 - x) ** 2)
        low, high = (low, x) if uphill else (x, high)
    toy = parabolas([[1.0], [3.0]], [[0.0], [1.0]])
    found = after(bench(toy, "propfair(M=2, eps=0.01)", [0.7], solver=SOLVER), 400)
    assert float(found) == pytest.approx(x, abs=1e-9)


def test_with_the_bound_at_eps_it_is_fedavg_with_a_larger_learning_rate(unlike):
    known = {"model": "mlp(hidden=4)"}
    few, many = fp.Solver(lr=0.02, steps=3, batch=4), fp.Solver(lr=0.1, steps=3, batch=4)
    found = after(bench(unlike, "propfair(M=0.2, eps=0.2)", solver=few, **known), 3)
    wanted = after(bench(unlike, "fedavg", solver=many, **known), 3)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


def test_a_far_bound_is_fedavg_with_a_learning_rate_over_it(unlike):
    known = {"model": "mlp(hidden=4)"}
    far, near = fp.Solver(lr=0.1 * 1e8, steps=2), fp.Solver(lr=0.1, steps=2)
    found = after(bench(unlike, "propfair(M=1e8)", solver=far, **known), 2)
    torch.testing.assert_close(
        found, after(bench(unlike, "fedavg", solver=near, **known), 2), rtol=1e-6, atol=1e-8
    )
