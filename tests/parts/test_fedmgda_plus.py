"""FedMGDA+: fixtures, limits, and a reference in numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scripted import FIXTURE, Script, matrix, vector
from torch import Tensor

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import FedMGDAPlus
from fedparity.recipes import algorithm
from fedparity.toolbox.shortest import slsqp

G = matrix((1, 0), (-1, 0.5), (0.2, -1))


def step(updates: Tensor, n: tuple[int, ...] | None = None, **settings: object) -> Tensor:
    """Return the step of the first round, as a pseudo-gradient."""
    x = torch.zeros_like(updates[0])
    script = Script([FedMGDAPlus(**settings)], x, n=n or [1] * len(updates))
    return x - script.play(-updates)


def reference(updates: np.ndarray, weights: np.ndarray, eps: float) -> np.ndarray:
    """Return the step by trying all entries at their bounds or free, with the mean length."""
    lengths = np.linalg.norm(updates, axis=1)
    rows = updates / lengths[:, None]
    low, high = np.maximum(weights - eps, 0), np.minimum(weights + eps, 1)
    best = np.full(updates.shape[1], np.inf)
    for kinds in product("lfh", repeat=len(rows)):
        free = np.array([kind == "f" for kind in kinds])
        p = np.where(np.array(kinds) == "l", low, high)
        if free.any():
            k = int(free.sum())
            system = np.block([[rows[free] @ rows[free].T, np.ones((k, 1))], [np.ones(k), 0]])
            right = np.append(-rows[free] @ (rows[~free].T @ p[~free]), 1 - p[~free].sum())
            p[free] = np.linalg.lstsq(system, right, rcond=None)[0][:k]
        possible = (p >= low - 1e-9).all() and (p <= high + 1e-9).all()
        if possible and abs(p.sum() - 1) < 1e-9 and np.linalg.norm(p @ rows) < np.linalg.norm(best):
            best = p @ rows
    return lengths.mean() * best


def test_the_fixture_without_freedom_is_the_mean_of_unit_updates():
    # ((1, 0) + (-1, .5) / 1.118034 + (.2, -1) / 1.019804) / 3
    wanted = vector(0.100563, -0.177789)
    torch.testing.assert_close(step(G, eps=0.0, length="unit"), wanted, atol=1e-6, rtol=0)


def test_the_fixture_with_full_freedom_has_the_origin_in_its_hull():
    # lambda = (0.356022, 0.442271, 0.201707) solves lambda_1 + ... = 1 and sum lambda G / |G| = 0
    torch.testing.assert_close(step(G, eps=1.0), vector(0, 0), atol=1e-15, rtol=0)


@pytest.mark.parametrize("eps", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("n", [(1, 1, 1, 1), (4, 1, 2, 1)])
def test_the_step_is_that_of_the_reference(eps, n):
    draw = np.random.default_rng(0)
    for d in (3, 20):
        updates = draw.standard_normal((4, d)) * draw.uniform(0.1, 10, (4, 1)) + 0.5
        wanted = reference(updates, np.array(n) / sum(n), eps)
        found = step(torch.from_numpy(updates), n, eps=eps)
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


def test_the_direction_of_full_freedom_descends_for_every_client():
    draw = torch.Generator().manual_seed(0)
    updates = torch.randn(6, 50, dtype=torch.float64, generator=draw) + 0.2
    units = updates / updates.norm(dim=1, keepdim=True)
    d = step(updates, eps=1.0, length="unit")
    assert bool((units @ d >= d @ d - 1e-12).all())


def test_updates_of_one_direction_are_followed_at_their_mean_length():
    found = step(matrix((3.0, 4.0), (6.0, 8.0)), eps=0.5)
    torch.testing.assert_close(found, 7.5 * vector(0.6, 0.8))


def test_two_opposite_clients_leave_the_model_where_it_is():
    assert step(matrix((2.0, 0.0), (-1.0, 0.0)), eps=1.0).norm() < 1e-15


def test_one_client_takes_its_own_step_and_at_length_one_a_normalised_one():
    torch.testing.assert_close(step(matrix((3.0, 4.0))), vector(3.0, 4.0))
    torch.testing.assert_close(step(matrix((3.0, 4.0)), length="unit"), vector(0.6, 0.8))


def test_an_update_of_zero_is_left_out():
    some = step(matrix((3.0, 4.0), (0.0, 0.0), (0.0, 5.0)), eps=0.0, length="unit")
    torch.testing.assert_close(some, (vector(0.6, 0.8) + vector(0.0, 1.0)) / 2)
    assert step(torch.zeros(3, 2, dtype=torch.float64)).tolist() == [0.0, 0.0]
    # all weight on the client that did not move
    script = Script([FedMGDAPlus()], n=[0, 1])
    assert torch.equal(script.play(matrix((1.0, 0.0), (0.0, 0.0))), vector(1.0, 2.0))


def test_eta_is_a_factor_on_the_step():
    torch.testing.assert_close(step(FIXTURE, eta=3.0), 3 * step(FIXTURE))


def test_weights_of_others_are_the_centre_of_the_box():
    # loss 1 and 3: AFL's weights after a step of 0.1 are 0.4 and 0.6, taken as they are by eps=0.
    parts = list(algorithm("afl(order=weights_first)+fedmgda_plus(eps=0, length=unit)").parts)
    script = Script(parts, vector(0, 0), n=[1, 1])
    found = script.play(matrix((2.0, 0.0), (0.0, 5.0)), loss=(1.0, 3.0))
    torch.testing.assert_close(found, vector(0.4, 0.6))


@pytest.mark.parametrize("text", ["qffl", "eagle", "nova"])
def test_weights_that_are_no_distribution_are_refused(text):
    with pytest.raises(InputError, match=f"those of '{text}' are none"):
        algorithm(f"{text}+fedmgda_plus")


def test_with_full_freedom_weights_of_others_would_be_ignored():
    with pytest.raises(InputError, match="would be ignored"):
        algorithm("afl+fedmgda_plus(eps=1)")


def test_the_recipe_of_the_paper_is_uniform_with_a_constant_step():
    assert algorithm("fedmgda_plus_paper(eta=0.5)").parts == (
        fp.parts.Uniform(),
        FedMGDAPlus(length="unit", eta=0.5),
    )


@pytest.mark.parametrize("eps", [0.05, 1.0])
def test_large_updates_of_single_precision_have_a_direction_as_short_as_slsqps(eps):
    # 40 x 20,000 numbers are two blocks; some clients are alike to the last bit, which leaves many
    # mixtures of the shortest length.
    draw, m = np.random.default_rng(0), 40
    rows = (draw.standard_normal((m, 20_000)) + 0.3 * draw.standard_normal(20_000)).astype("f4")
    rows[10:14] = rows[3]
    units = rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    low, high = np.full(m, max(0, 1 / m - eps)), np.full(m, min(1, 1 / m + eps))
    oracle = slsqp(units @ units.T, np.full(m, 1 / m), low, high, tolerance=1e-14) @ units
    found = step(torch.from_numpy(rows), eps=eps, length="unit").numpy()
    np.testing.assert_allclose(found, oracle, atol=1e-6)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(oracle), rel=1e-6)
