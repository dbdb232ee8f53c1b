"""Methods that re-weigh or re-aim, whole rounds of them, against plain numpy without autograd.

Ditto and FOCUS, which keep models of their own, have theirs in ``test_ditto`` and ``test_focus``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import erf, log, sqrt

import numpy as np
import pytest
from logistic import Batch, Vector, batches, gradient, loss, probabilities, whole
from scripted import bench

import fedparity as fp

LR = 0.1
STEPS = fp.Solver(lr=LR, steps=3, batch=4)
COHORTS = ((0, 1, 2, 3), (0, 1, 3), (2, 3), (0, 1, 2, 3))
EVERYONE = ((0, 1, 2, 3),) * 4
K = 4
Slope = Callable[[Vector, Batch], Vector]
Server = Callable[[int, tuple[int, ...], Vector, Vector, list[Batch]], Vector]


def agrees(unlike, text, server: Server, cohorts=COHORTS, slope: Slope = gradient, **conditions):
    """Play rounds of SGD in numpy, where ``server`` returns the step, beside those of the part."""
    made = bench(unlike, text, solver=STEPS, model="linear", **conditions)
    x = made.server.x.numpy().copy()
    everything = [whole(made, k) for k in range(K)]
    for round, cohort in enumerate(cohorts, 1):
        ends = []
        for k in cohort:
            y = x.copy()
            for batch in batches(made, round, k):
                y = y - LR * slope(y, batch)
            ends.append(y)
        x = x + server(round, cohort, x, np.stack(ends) - x, everything)
        made.advance(answering=cohort)
        np.testing.assert_allclose(made.server.x.numpy(), x, atol=1e-11, rtol=0)


def by_size(cohort, everything) -> Vector:
    n = np.array([len(everything[k][1]) for k in cohort], float)
    return n / n.sum()


def losses(cohort, x, everything) -> Vector:
    return np.array([loss(x, everything[k]) for k in cohort])


def phi(x: Vector) -> Vector:
    """Return the normal distribution function of ``x - 1``."""
    return np.array([(1 + erf((each - 1) / sqrt(2))) / 2 for each in x])


def on_faces(H: Vector, b: Vector, low: Vector, high: Vector) -> Vector:
    """Return the mixture of least ``p'Hp/2 + b'p`` in a box: each entry at a bound, or free."""
    best, least = low, np.inf
    for kinds in product("lfh", repeat=len(b)):
        free = np.array([kind == "f" for kind in kinds])
        p, k = np.where(np.array(kinds) == "l", low, high), int(free.sum())
        if k:
            system = np.block([[H[np.ix_(free, free)], np.ones((k, 1))], [np.ones(k), 0]])
            right = np.append(-b[free] - H[np.ix_(free, ~free)] @ p[~free], 1 - p[~free].sum())
            p[free] = np.linalg.lstsq(system, right, rcond=None)[0][:k]
        inside = (p >= low - 1e-12).all() and (p <= high + 1e-12).all()
        if inside and abs(p.sum() - 1) < 1e-12 and p @ H @ p / 2 + b @ p < least:
            best, least = p, p @ H @ p / 2 + b @ p
    return best


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("eps", [0.05, 1.0])
def test_fedmgda_plus(unlike, eps, engine):
    def server(round, cohort, x, D, everything):
        lengths = np.linalg.norm(D, axis=1)
        unit = D / lengths[:, None]
        a = by_size(cohort, everything)
        low, high = np.maximum(a - eps, 0), np.minimum(a + eps, 1)
        share = on_faces(unit @ unit.T, np.zeros(len(cohort)), low, high)
        return lengths.mean() * share @ unit

    agrees(unlike, f"fedmgda_plus(eps={eps})", server, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("M", "eps", "wanted"), [(9.0, 0.2, {True}), (2.0, 0.2, {True, False})])
def test_propfair(unlike, M, eps, wanted, engine):
    kinds = set()  # of batches: under the logarithm or not

    def slope(y, batch):
        left = M - loss(y, batch)
        kinds.add(left >= eps)
        return gradient(y, batch) * (1 / left if left >= eps else 1 / eps)

    def server(round, cohort, x, D, everything):
        return by_size(cohort, everything) @ D

    agrees(unlike, f"propfair(M={M}, eps={eps})", server, slope=slope, engine=engine)
    assert kinds == wanted


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("t", [2.0, -1.0])
@pytest.mark.parametrize("prior", ["uniform", "size"])
def test_term_between_clients(unlike, t, prior, engine):
    def server(round, cohort, x, D, everything):
        pi = by_size(cohort, everything) if prior == "size" else np.ones(len(cohort))
        share = pi * np.exp(t * losses(cohort, x, everything))
        return share / share.sum() @ D

    agrees(unlike, f"term(t={t}, prior={prior})", server, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("s", [1.5, -1.0])
def test_term_between_examples_too(unlike, s, engine):
    t = 0.7

    def each(v, batch):
        x, y = batch
        return -np.log(probabilities(v, x)[np.arange(len(y)), y])

    def slope(v, batch):
        tilt = np.exp(s * each(v, batch))
        rows = [gradient(v, (batch[0][i : i + 1], batch[1][i : i + 1])) for i in range(len(tilt))]
        return tilt / tilt.sum() @ np.array(rows)

    def server(round, cohort, x, D, everything):
        inner = [np.log(np.exp(s * each(x, everything[k])).mean()) / s for k in cohort]
        share = np.exp(t * np.array(inner))
        return share / share.sum() @ D

    agrees(unlike, f"term(t={t}, inner={s})", server, slope=slope, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_aaggff_across_silos(unlike, engine):
    p, H, b = np.full(K, 1 / K), 4 * np.eye(K), np.zeros(K)  # alpha = 4 K L and beta = K / 4

    def server(round, cohort, x, D, everything):
        nonlocal p, H, b
        F = losses(cohort, x, everything)
        r = phi(F / F.mean()) / K
        g = -r / (1 + p @ r)
        H, b = H + K / 4 * np.outer(g, g), b + g - K / 4 * g * (g @ p)
        p = on_faces(H, b, np.zeros(K), np.ones(K))
        return p @ D

    agrees(unlike, "aaggff", server, EVERYONE, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_aaggff_across_devices(unlike, engine):
    p, total = np.full(K, 1 / K), np.zeros(K)

    def server(round, cohort, x, D, everything):
        nonlocal p, total
        F, C, ids = losses(cohort, x, everything), len(cohort) / K, list(cohort)
        r = C * phi(F / F.mean())
        rbar = r.mean()
        full = np.full(K, rbar)
        full[ids] += (r - rbar) / C
        total = total - full / (1 + rbar) + rbar * (p @ (full - rbar)) / (1 + rbar) ** 2
        p = np.exp(-total * sqrt(log(K)) / ((2 + C) * sqrt(round + 1)))
        p = p / p.sum()
        return p[ids] / p[ids].sum() @ D

    agrees(unlike, "aaggff(solver=ftrl)", server, engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("momentum", ["ema", "heavy", "easyfl"])
def test_fedfa(unlike, momentum, engine):
    alpha, gamma, tiny = 0.3, 0.6, 1e-6
    counts, M = np.zeros(K), np.zeros(1)

    def server(round, cohort, x, D, everything):
        nonlocal M
        ids = list(cohort)
        right = [(probabilities(x, i).argmax(1) == y).mean() for i, y in everything]
        accuracy = np.array(right)[ids]
        counts[ids] += 1
        # who alone is ever right has a share of 1, and no information, though 1 + tiny has less
        A = np.maximum(0, -np.log2(accuracy / accuracy.sum() + tiny))
        B = np.maximum(0, -np.log2(1 - counts[ids] / counts[ids].sum() + tiny))
        d = (alpha * A / A.sum() + (1 - alpha) * B / B.sum()) @ D
        M = gamma * M + (1 if momentum == "heavy" else 1 - gamma) * d
        return d - LR * M if momentum == "easyfl" else M

    text = f"fedfa(alpha={alpha}, gamma={gamma}, momentum={momentum})"
    agrees(unlike, text, server, engine=engine)
