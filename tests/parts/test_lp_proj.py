"""lp-proj: own models, tied to one short vector through a random projection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from logistic import batches, evaluated, gradient, loss, own, whole
from scripted import after, bench

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts.personal.lp_proj import projection

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


def lp_proj(unlike, text, engine="loop", **conditions):
    return bench(unlike, text, solver=STEPS, model="linear", engine=engine, **conditions)


def slopes(c, p):
    """Return the gradients of |c|^p / p and of the p-norm of c; of the squared norm for p = 2."""
    if p == 2:
        return c, c
    unit = np.abs(c) / (np.abs(c) ** p).sum() ** (1 / p)
    return np.sign(c) * np.abs(c) ** (p - 1), np.sign(c) * unit ** (p - 1)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("p", "every"), [(1, None), (1.5, None), (2, None), (1.5, 2), (2, 1)])
def test_it_agrees_with_a_reference_of_its_formulas(unlike, engine, p, every):
    lam, rate, beta = 0.5, 0.3, 0.8
    settings = f"lam={lam}, size=5, p={p}, rate={rate}, beta={beta}, every={every}"
    made = lp_proj(unlike, f"lp_proj({settings})", engine)
    P = projection(5, 12, 0, torch.float64).numpy()
    theta, w = np.tile(made.server.x.numpy(), (4, 1)), np.zeros(5)
    for round, cohort in enumerate([(0, 1, 2, 3), (0, 3)], 1):
        sent = []
        for k in cohort:
            mine, steps = w, list(batches(made, round, k))
            for done, batch in enumerate(steps, 1):
                pull = lam * P.T @ slopes(mine - P @ theta[k], p)[0]
                theta[k] = theta[k] - 0.1 * (gradient(theta[k], batch) - pull)
                if done == len(steps) or (every and done % every == 0):
                    mine = mine - rate * lam * slopes(mine - P @ theta[k], p)[1]
            sent.append(mine)
        sizes = unlike.train.sizes[list(cohort)]
        w = (1 - beta) * w + beta * sizes @ np.stack(sent) / sizes.sum()
        made.advance(answering=cohort)
    assert made.server.parts["lp_proj"]["w"].numpy() == pytest.approx(w, abs=1e-12)
    assert own(made, "lp_proj", "own") == pytest.approx(theta, abs=1e-12)
    wanted = [loss(theta[k], whole(made, k)) for k in range(4)]
    assert evaluated(made) == pytest.approx(wanted, abs=1e-12)
    assert torch.equal(made.server.x, made.x)


def test_rows_of_the_projection_have_length_one_and_depend_on_the_seed_alone():
    rows = projection(60, 200, 3, torch.float64)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(60).double())
    projection.cache_clear()
    assert torch.equal(rows, projection(60, 200, 3, torch.float64))
    assert not torch.equal(rows, projection(60, 200, 4, torch.float64))


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_where_projection_and_vector_agree_nothing_is_pulled(unlike, p):
    made = lp_proj(unlike, f"lp_proj(p={p}, size=2)")
    part, x = made.setup.algorithm.parts[0], torch.zeros(12, dtype=torch.float64)
    c = fp.Client(0.1, 1, made.setup.layout, x=x, down={"w": x[:2]}, carried={}, after=lambda: x)
    assert not bool(part.grad(x, x, c).any())
    assert not bool(part.finish(x, c).report["w"].any())


@pytest.mark.parametrize("p", [1, 2])
def test_a_strong_tie_brings_the_projections_together(unlike, p):
    P, apart = projection(3, 12, 0, torch.float64).numpy(), []
    for lam in (0.0, 2.0):
        made = lp_proj(unlike, f"lp_proj(lam={lam}, p={p}, size=3)")
        after(made, 20)
        apart.append(np.ptp(own(made, "lp_proj", "own") @ P.T, axis=0).max())
    assert apart[1] < apart[0] / 2


@pytest.mark.parametrize("other", ["momentum", "varp", "trimmed_mean"])
def test_what_acts_on_shared_parameters_is_refused(unlike, other):
    with pytest.raises(InputError, match=f"'{other}' acts on updates of the shared parameters"):
        lp_proj(unlike, f"lp_proj+{other}")


def test_weights_that_are_no_distribution_move_the_vector_to_a_mean_all_the_same(unlike):
    made = lp_proj(unlike, "qffl(q=2)+lp_proj(size=3)")
    replies = made.advance()
    assert float(replies.weights.sum()) < 0.9
    share = replies.weights / replies.weights.sum()
    wanted = share @ replies.reports["lp_proj"]["w"]
    torch.testing.assert_close(made.server.parts["lp_proj"]["w"], wanted)


@pytest.mark.parametrize("every", [1, 2])
def test_a_client_of_fewer_steps_moves_its_vector_no_more(unlike, every):
    """Over an epoch clients take 3, 1, 1 and 2 steps, padded to 3 in a stack."""
    found = []
    for engine in ("loop", "vmap"):
        made = bench(
            unlike,
            f"lp_proj(every={every}, size=4, p=2)",
            solver=fp.Solver(lr=0.1, epochs=1, batch=4),
            model="linear",
            engine=engine,
        )
        found.append(made.advance().reports["lp_proj"]["w"])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
