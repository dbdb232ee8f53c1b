"""Ditto: personal models pulled towards the shared one."""

from __future__ import annotations

import numpy as np
import pytest
from logistic import batches, evaluated, gradient, loss, own, whole
from scripted import after, bench, parabolas

import fedparity as fp
from fedparity.errors import InputError

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_it_agrees_with_a_reference_that_interleaves_the_steps(unlike, engine):
    lam, lr, cohorts = 0.7, 0.1, [(0, 1, 3), (0, 2, 3), (0, 1, 2, 3)]
    made = bench(unlike, f"ditto(lam={lam})", solver=STEPS, model="linear", engine=engine)
    x = made.server.x.numpy().copy()
    v = np.tile(x, (4, 1))
    for round, cohort in enumerate(cohorts, 1):
        sent = []
        for k in cohort:
            y = x.copy()
            for batch in batches(made, round, k):
                v[k] = v[k] - lr * (gradient(v[k], batch) + lam * (v[k] - x))
                y = y - lr * gradient(y, batch)
            sent.append(y)
        sizes = unlike.train.sizes[list(cohort)]
        x = sizes @ np.stack(sent) / sizes.sum()
        made.advance(answering=cohort)
    assert made.server.x.numpy() == pytest.approx(x, abs=1e-12)
    assert own(made, "ditto", "own") == pytest.approx(v, abs=1e-12)
    wanted = [loss(v[k], whole(made, k)) for k in range(4)]
    assert evaluated(made) == pytest.approx(wanted, abs=1e-12)


def test_a_pull_of_one_over_the_rate_is_a_gradient_step_from_the_shared_model():
    # lr lam = 1: v - lr g(v) - (v - x) = x - lr g(v); F(v) = (v - 3)^2 and x = 1, so that
    # v_1 = 1 - 0.2 (v_0 - 3) and v_2 = 1 - 0.2 (v_1 - 3), from the v_0 that was drawn.
    made = bench(
        parabolas([[1.0]], [[3.0]]), "ditto(lam=10)", [1.0], solver=fp.Solver(lr=0.1, steps=2)
    )
    made.advance()
    first = 1 - 0.2 * (float(made.x) - 3)
    assert own(made, "ditto", "own") == pytest.approx(1 - 0.2 * (first - 3))


def test_training_to_the_end_minimises_the_loss_with_the_pull():
    # min (v - 3)^2 + lam/2 (v - 1)^2 is at v = (6 + lam) / (2 + lam): lam = 2 gives 2.
    made = bench(
        parabolas([[1.0]], [[3.0]]), "ditto(lam=2)", [1.0], solver=fp.Solver(lr=0.1, steps=200)
    )
    made.advance()
    assert own(made, "ditto", "own") == pytest.approx(2.0)


def test_a_step_that_diverges_is_refused_with_the_remedy(unlike):
    with pytest.raises(InputError, match=r"diverges: lower one of them until lr \* lam < 2"):
        bench(unlike, "ditto(lam=20)", solver=STEPS, model="linear")


def test_momentum_acts_on_both_models():
    # Without pull both take the same steps from the same parameters, whatever the solver.
    solver = fp.Solver(lr=0.1, steps=3, momentum=0.5)
    made = bench(parabolas([[1.0]], [[3.0]]), "ditto(lam=0)", solver=solver)
    x = after(made).numpy()
    assert own(made, "ditto", "own")[0] == pytest.approx(x)
