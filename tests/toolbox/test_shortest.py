"""The shortest mixture of vectors, against every choice of bounds and against the conditions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedparity.toolbox import shortest as module
from fedparity.toolbox.shortest import min_norm, slsqp


def units(m: int, d: int, seed: int, common: float = 0.3) -> np.ndarray:
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((m, d)) + common * draw.standard_normal(d)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mixture(m: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(m))


def box(centre: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    return np.maximum(centre - radius, 0), np.minimum(centre + radius, 1)


def brute_force(rows: np.ndarray, centre: np.ndarray, radius: float) -> float:
    """Return the least length over all choices of entries at their lower or upper bound."""
    low, high = box(centre, radius)
    m, best = len(rows), np.inf
    for bounds in product((-1, 0, 1), repeat=m):
        at = np.array(bounds)
        p = np.where(at < 0, low, high)
        free = at == 0
        if free.any():
            # v(p) = v_fixed + sum of free entries that add up to `left`: least squares in their
            # differences to the first of them
            left, first = 1 - p[~free].sum(), rows[free][0]
            start = rows[~free].T @ p[~free] + left * first
            others = (rows[free][1:] - first).T
            moved = np.linalg.lstsq(others, -start, rcond=None)[0] if others.size else np.zeros(0)
            p[free] = np.append(left - moved.sum(), moved)
        inside = (p >= low - 1e-9).all() and (p <= high + 1e-9).all()
        if inside and abs(p.sum() - 1) < 1e-9:
            best = min(best, float(np.linalg.norm(rows.T @ p)))
    return best


@given(
    m=st.integers(1, 5),
    d=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
)
def test_no_choice_of_bounds_gives_a_shorter_mixture(m, d, seed, radius):
    rows, centre = units(m, d, seed), mixture(m, seed)
    p = min_norm(rows @ rows.T, centre, radius)
    low, high = box(centre, radius)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p >= low - 1e-12).all()
    assert (p <= high + 1e-12).all()
    assert np.linalg.norm(rows.T @ p) == pytest.approx(brute_force(rows, centre, radius), abs=1e-8)


@pytest.mark.parametrize("d", [60, 2000])
@pytest.mark.parametrize("radius", [0.01, 0.1, 1.0])
def test_a_hundred_vectors_are_solved_to_rounding(d, radius):
    rows, centre = units(100, d, seed=d), np.full(100, 0.01)
    p = min_norm(rows @ rows.T, centre, radius)
    low, high = box(centre, radius)
    # Nothing is gained by shifting weight: v.(v - v_k) <= 0 where k could grow and another shrink.
    slope = rows @ (rows.T @ p)
    assert slope[p > low + 1e-9].max() <= slope[p < high - 1e-9].min() + 1e-12


def test_slsqp_finds_the_same_vector_to_its_tolerance():
    rows, centre = units(12, 30, seed=3), mixture(12, seed=3)
    for radius in (0.05, 1.0):
        exact = min_norm(rows @ rows.T, centre, radius)
        near = slsqp(rows @ rows.T, centre, *box(centre, radius), tolerance=1e-12)
        np.testing.assert_allclose(rows.T @ near, rows.T @ exact, atol=1e-5)


@pytest.mark.parametrize("d", [3, 10])
@pytest.mark.parametrize("apart", [0.3, 2.0])
def test_a_hundred_vectors_of_few_coordinates_are_solved_without_slsqp(monkeypatch, d, apart):
    """Their products are a singular matrix; with a large common part they have common descent."""
    rng = np.random.default_rng(d)
    rows = rng.standard_normal((100, d)) + apart * rng.standard_normal(d)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    monkeypatch.setattr(module, "slsqp", None)
    p = min_norm(rows @ rows.T, np.full(100, 0.01))
    v = rows.T @ p
    assert (rows @ v).min() >= v @ v - 1e-9
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_where_the_guesses_go_in_circles_another_solver_gives_the_bounds(monkeypatch, radius):
    rows, centre = units(12, 6, seed=1), np.full(12, 1 / 12)
    wanted = min_norm(rows @ rows.T, centre, radius)
    asked, solve = [], module._exact

    def only_near(gram, near, low, high):
        asked.append(near)
        return solve(gram, near, low, high) if len(asked) > 1 else None

    monkeypatch.setattr(module, "_exact", only_near)
    found = min_norm(rows @ rows.T, centre, radius)
    assert len(asked) == 2
    np.testing.assert_allclose(rows.T @ found, rows.T @ wanted, atol=1e-12)

    monkeypatch.setattr(module, "_exact", lambda *_: None)
    found = min_norm(rows @ rows.T, centre, radius)
    np.testing.assert_allclose(rows.T @ found, rows.T @ wanted, atol=1e-3)


def test_the_nearest_point_of_a_segment():
    # v_1 = (1, 0), v_2 = (1, 2): the segment's point nearest to 0 is its end v_1.
    rows = np.array([[1.0, 0.0], [1.0, 2.0]])
    assert min_norm(rows @ rows.T, np.array([0.5, 0.5])) == pytest.approx([1.0, 0.0])
    # the other way may go only as far as the box
    assert min_norm(rows @ rows.T, np.array([0.5, 0.5]), 0.2) == pytest.approx([0.7, 0.3])


def test_equal_vectors_have_some_mixture():
    p = min_norm(np.ones((3, 3)), np.array([0.2, 0.3, 0.5]))
    assert p.sum() == pytest.approx(1)
    assert p.min() >= 0
