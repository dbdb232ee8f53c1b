"""APFL: personal models trained for their mixture with the shared one."""

from __future__ import annotations

import numpy as np
import pytest
from logistic import batches, evaluated, gradient, loss, own, whole
from scripted import after, bench, parabolas

import fedparity as fp

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_it_agrees_with_a_reference_that_moves_both_models_at_every_step(unlike, engine, adaptive):
    lr, cohorts = 0.1, [(0, 1, 3), (0, 2, 3), (0, 1, 2, 3)]
    text = f"apfl(alpha=0.3, adaptive={str(adaptive).lower()})"
    made = bench(unlike, text, solver=STEPS, model="linear", engine=engine)
    x = made.server.x.numpy().copy()
    v, alpha = np.tile(x, (4, 1)), np.full(4, 0.3)
    for round, cohort in enumerate(cohorts, 1):
        sent = []
        for k in cohort:
            y, a, mean = (
                x.copy(),
                alpha[k],
                gradient(alpha[k] * v[k] + (1 - alpha[k]) * x, whole(made, k)),
            )
            if adaptive:
                alpha[k] = np.clip(a - lr * (v[k] - x) @ mean, 0, 1)
            for batch in batches(made, round, k):
                mixture = a * v[k] + (1 - a) * y
                v[k], y = v[k] - lr * a * gradient(mixture, batch), y - lr * gradient(y, batch)
            sent.append(y)
        sizes = unlike.train.sizes[list(cohort)]
        x = sizes @ np.stack(sent) / sizes.sum()
        made.advance(answering=cohort)
    assert made.server.x.numpy() == pytest.approx(x, abs=1e-12)
    assert own(made, "apfl", "own") == pytest.approx(v, abs=1e-12)
    assert own(made, "apfl", "alpha") == pytest.approx(alpha, abs=1e-12)
    assert (np.ptp(alpha) > 1e-6) == adaptive
    mixed = alpha[:, None] * v + (1 - alpha[:, None]) * x
    wanted = [loss(mixed[k], whole(made, k)) for k in range(4)]
    assert evaluated(made) == pytest.approx(wanted, abs=1e-12)


def test_the_share_0_serves_everyone_the_shared_model(unlike):
    made = bench(unlike, "apfl(alpha=0)", solver=STEPS, model="linear")
    after(made, 2)
    assert evaluated(made) == pytest.approx(evaluated(made, "global"), abs=0)


def test_training_to_the_end_brings_the_mixture_to_the_clients_own_optimum():
    made = bench(
        parabolas([[1.0], [1.0]], [[3.0], [-1.0]]),
        "apfl(alpha=0.5)",
        solver=fp.Solver(lr=0.2, steps=300),
    )
    made.advance()
    # F = (y - b)^2: the shared models stand at b, and so does the mixture of each with its v.
    assert own(made, "apfl", "own")[:, 0] == pytest.approx([3.0, -1.0])


def test_clients_of_unlike_numbers_of_steps_stop_both_models(unlike):
    solver = fp.Solver(lr=0.1, epochs=2, batch=4, momentum=0.5)
    loop, stack = (
        bench(unlike, "apfl", solver=solver, model="linear", engine=engine)
        for engine in ("loop", "vmap")
    )
    for made in (loop, stack):
        after(made, 2)
    assert len(set(loop.setup.lengths(np.arange(4)))) > 1
    assert own(loop, "apfl", "own") == pytest.approx(own(stack, "apfl", "own"), abs=1e-12)
