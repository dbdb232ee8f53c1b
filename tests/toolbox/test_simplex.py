"""The projection onto the simplex."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedparity.toolbox.simplex import project

ENTRIES = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=8)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(v=ENTRIES, mass=st.floats(0.01, 10))
def test_the_projection_has_the_mass_and_no_negative_entry(v, mass):
    p = project(vector(*v), mass)
    assert float(p.min()) >= 0
    assert float(p.sum()) == pytest.approx(mass, rel=1e-9)


@given(v=ENTRIES, seed=st.integers(0, 1000))
def test_no_point_of_the_simplex_is_nearer(v, seed):
    p = project(vector(*v))
    other = torch.rand(len(v), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    other = other / other.sum()
    assert float((p - vector(*v)).norm()) <= float((other - vector(*v)).norm()) + 1e-9


def test_a_point_of_the_simplex_stays():
    torch.testing.assert_close(project(vector(0.2, 0.5, 0.3)), vector(0.2, 0.5, 0.3))


def test_a_common_shift_changes_nothing():
    v = vector(0.5, 1.0, 0.0)
    torch.testing.assert_close(project(v + 1e6), project(v), atol=1e-9, rtol=0)


def test_huge_entries_do_not_swallow_the_mass():
    assert project(vector(1e30, 0.0)).tolist() == [1.0, 0.0]


def test_no_mass_is_nothing_for_all():
    assert project(vector(0.0, 0.0), 0.0).tolist() == [0.0, 0.0]
    assert project(vector(3.0, 1.0), 0.0).tolist() == [0.0, 0.0]


@given(v=ENTRIES, seed=st.integers(0, 1000), room=st.floats(1.0, 3.0))
def test_with_a_bound_no_point_under_it_is_nearer(v, seed, room):
    m, most = len(v), room / len(v)
    p = project(vector(*v), most=most)
    assert 0 <= float(p.min()) <= float(p.max()) <= most
    assert float(p.sum()) == pytest.approx(1, rel=1e-9)
    other = torch.rand(m, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    other = torch.minimum(other / other.sum(), torch.tensor(most))
    gap = most - other
    other = other + (1 - other.sum()) * gap / gap.sum().clamp_min(1e-300)
    assert float((p - vector(*v)).norm()) <= float((other - vector(*v)).norm()) + 1e-9


def test_a_bound_that_nobody_reaches_changes_nothing():
    v = vector(0.2, 0.9, -0.3)
    torch.testing.assert_close(project(v, most=1.0), project(v))
    # (3, 0, 0) under 0.5: the first is cut, the others share what is left
    assert project(vector(3.0, 0.0, 0.0), most=0.5).tolist() == [0.5, 0.25, 0.25]
