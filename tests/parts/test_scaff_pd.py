"""SCAFF-PD: its limits, and a reference in numpy on parabolas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scripted import after, bench, parabolas, vector

from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.parts import AFL, ScaffPD, Uniform
from fedparity.recipes import algorithm

CURVES = np.array([[1.0, 0.5], [0.3, 2.0], [1.5, 1.0]])
MINIMA = np.array([[1.0, -1.0], [-0.5, 0.5], [0.2, 0.1]])
START = [0.7, -0.4]
CLIENTS = parabolas(CURVES.tolist(), MINIMA.tolist())


def losses(x: np.ndarray) -> np.ndarray:
    return (CURVES * (x - MINIMA) ** 2).sum(-1)


def gradients(y: np.ndarray) -> np.ndarray:
    return 2 * CURVES * (y - MINIMA)


def dual(old: np.ndarray, s: np.ndarray, sigma: float, rho: float, most: float) -> np.ndarray:
    """Return the maximum of the dual step's objective, by a general solver."""
    K = len(old)

    def objective(p: np.ndarray) -> float:
        psi = rho / 2 * ((K * p - 1) ** 2).sum() / K
        return float(-(s @ p) + psi + ((p - old) ** 2).sum() / (2 * sigma))

    total = {"type": "eq", "fun": lambda p: p.sum() - 1}
    bounds = [(0, most)] * K
    return minimize(
        objective, old, method="SLSQP", bounds=bounds, constraints=total, options={"ftol": 1e-14}
    ).x


@pytest.mark.parametrize(
    ("sigma", "rho", "theta", "worst"),
    [(0.2, 0.5, 1.0, None), (0.5, 0.0, 0.5, None), (2.0, 0.1, 1.0, 0.8)],
)
def test_rounds_are_those_of_the_reference(sigma, rho, theta, worst):
    part = ScaffPD(sigma=sigma, rho=rho, theta=theta, worst=worst)
    made = bench(CLIENTS, [part], START, solver=Solver(lr=0.05, steps=4))
    x, mixture, last = np.array(START), np.full(3, 1 / 3), losses(np.array(START))
    for _ in range(3):
        s = (1 + theta) * losses(x) - theta * last
        last, most = losses(x), 1.0 if worst is None else 1 / (3 * worst)
        mixture = dual(mixture, s, sigma, rho, most)
        mean, y = mixture @ gradients(x), np.tile(x, (3, 1))
        for _ in range(4):
            y = y - 0.05 * (gradients(y) - gradients(x) + mean)
        x = x + mixture @ (y - x)
        np.testing.assert_allclose(after(made).numpy(), x, atol=1e-6)


def test_one_full_step_without_penalty_and_extrapolation_is_afl():
    ours, afl = (
        bench(CLIENTS, [part], START, solver=Solver(lr=0.1, steps=1))
        for part in (
            ScaffPD(sigma=0.3, rho=0.0, theta=0.0),
            AFL(eta=0.3, order="weights_first"),
        )
    )
    for _ in range(4):
        torch.testing.assert_close(after(ours), after(afl))


@pytest.mark.parametrize("settings", [{"sigma": 0.0}, {"rho": 1e12}, {"worst": 1.0}])
def test_one_full_step_with_uniform_weights_is_fedavg(settings):
    ours, fedavg = (
        bench(CLIENTS, [part], START, solver=Solver(lr=0.1, steps=1))
        for part in (ScaffPD(**settings), Uniform())
    )
    for _ in range(3):
        torch.testing.assert_close(after(ours), after(fedavg), atol=1e-9, rtol=0)


def test_clients_alike_take_their_own_steps():
    twins = parabolas([[1.0, 0.5]] * 2, [[1.0, -1.0]] * 2)
    ours, fedavg = (
        bench(twins, parts, START, solver=Solver(lr=0.1, steps=5)) for parts in ([ScaffPD()], [])
    )
    torch.testing.assert_close(after(ours, 3), after(fedavg, 3))


def test_no_weight_is_above_its_bound():
    found = ScaffPD(sigma=9.0, rho=0.0, worst=0.5).ascended(
        vector(0.25, 0.25, 0.25, 0.25), vector(9.0, 1.0, 0.5, 0.0), 4
    )
    torch.testing.assert_close(found, vector(0.5, 0.5, 0.0, 0.0))


def test_it_needs_every_client_and_no_other_control_variates():
    with pytest.raises(InputError, match="needs every client in every round"):
        bench(CLIENTS, "scaff_pd", solver=Solver(), cohort=2)
    for pair in ("scaffold+scaff_pd", "scaff_pd+scaffold"):
        with pytest.raises(InputError, match="keep one"):
            algorithm(pair)
