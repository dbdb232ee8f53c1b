"""The accountant: against closed forms, and against the package's own way of asking."""

from __future__ import annotations

import math

import pytest

dp = pytest.importorskip("dp_accounting")

from dp_accounting.rdp import RdpAccountant  # noqa: E402

from fedparity.toolbox.accounting import Mechanism, epsilon, jointly  # noqa: E402


@pytest.mark.parametrize("z", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("steps", [1, 50])
def test_without_sampling_it_is_below_the_closed_form_and_close_to_it(z, steps):
    # T a / 2z^2 + ln(1/delta) / (a - 1), least at a = 1 + z sqrt(2 ln(1/delta) / T)
    closed = steps / (2 * z**2) + math.sqrt(2 * steps * math.log(1e5)) / z
    found = epsilon(((Mechanism(z), steps),), 1e-5)
    assert 0.75 * closed < found <= closed


def test_a_cohort_without_replacement_is_counted_for_a_client_that_is_replaced():
    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(2.0)), 50)
    found = epsilon(((Mechanism(2.0, cohort=(10, 100)), 50),), 1e-3)
    assert found == pytest.approx(accountant.get_epsilon(1e-3), rel=0.01)


def test_poisson_lots_are_counted_for_one_example_more_or_less():
    accountant = RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 200)
    found = epsilon(((Mechanism(1.0, rate=0.05), 200),), 1e-5)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)


def test_drawing_a_cohort_never_costs_more_than_asking_everyone():
    # by itself the bound for cohorts is above 1000 here
    drawn, everyone = (Mechanism(0.25, cohort=(10, 100)), Mechanism(0.25))
    assert epsilon(((drawn, 100),), 1e-2) <= epsilon(((everyone, 100),), 1e-2)


def test_releases_together_are_one_of_their_joint_noise():
    apart = epsilon(((Mechanism(1.0), 3), (Mechanism(2.0), 3)), 1e-4)
    assert epsilon(((Mechanism(jointly([1.0, 2.0])), 3),), 1e-4) == pytest.approx(apart)


def test_nothing_released_costs_nothing():
    assert epsilon(((Mechanism(1.0), 0),), 1e-5) == 0.0
