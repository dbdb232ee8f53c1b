"""Statistics of loss gaps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedparity import metrics
from fedparity.errors import InputError

GAPS = np.array([0.1, 0.3, -0.2])


def test_the_gap_is_loss_minus_best_loss_alone():
    gaps = metrics.loss_gap([0.5, 0.2, math.nan], [0.4, 0.5, 0.1])
    assert gaps == pytest.approx([0.1, -0.3, math.nan], nan_ok=True)


def test_losses_and_optima_of_different_clients_are_refused():
    with pytest.raises(InputError, match="shape"):
        metrics.loss_gap([1, 2], [1])


def test_the_variance_of_gaps_is_the_sample_variance():
    # mean 1/15, squares add up to 0.14 - 3 / 225 = 0.126667
    assert metrics.gap_variance(GAPS) == pytest.approx((0.14 - 3 / 225) / 2)
    assert metrics.gap_variance_pop(GAPS) == pytest.approx((0.14 - 3 / 225) / 3)


def test_eagles_regulariser_is_twice_the_sample_variance():
    # (1/(K(K-1))) sum_{k != j} (r_k - r_j)^2, the term of the EAGLE objective
    pairs = ((GAPS[:, None] - GAPS[None, :]) ** 2).sum() / (3 * 2)
    assert pairs == pytest.approx(2 * metrics.gap_variance(GAPS))


def test_the_largest_gap_is_the_worst_clients():
    assert metrics.max_gap(GAPS) == 0.3
    assert metrics.min_gap(GAPS) == -0.2
    assert metrics.gap_range(GAPS) == pytest.approx(0.5)


def test_gamma_never_falls_and_a_failed_model_does_not_move_it():
    rows = [[0, 0.2], [0, 0.5], [math.nan, 1], [0.1, 0.2], [-1, 0]]
    assert metrics.gamma_trajectory(rows) == pytest.approx([0.2, 0.5, 0.5, 0.5, 1.0])
    assert metrics.gamma_trajectory([]).size == 0


def test_faa_with_the_best_loss_alone_is_the_range_of_the_gaps():
    loss, lstar = np.array([0.5, 0.7, 0.1]), np.array([0.4, 0.4, 0.3])
    assert metrics.faa(loss, lstar) == pytest.approx(0.3 - (-0.2))
    assert metrics.faa(loss, lstar) == pytest.approx(
        metrics.gap_range(metrics.loss_gap(loss, lstar))
    )


def test_who_gains_gains_strictly():
    gaps = [-0.2, 0.0, 0.1, -0.05]
    assert metrics.participation_rate(gaps) == 0.5
    assert metrics.participation_rate(gaps, tol=0.05) == 0.25
    with pytest.raises(InputError, match="tol"):
        metrics.participation_rate(gaps, tol=-1)


def test_the_mean_benefit_counts_all_clients():
    assert metrics.mean_benefit([-0.2, 0.0, 0.1, -0.05]) == pytest.approx(0.25 / 4)


def test_pareto_shares_add_up_to_one():
    shares = metrics.pareto([0.1, 0.5, 0.3], [0.2, 0.4, 0.3], better="lower")
    assert shares == metrics.Pareto(better=1 / 3, worse=1 / 3, equal=1 / 3)


def test_pareto_by_accuracy_is_better_when_higher():
    shares = metrics.pareto([90, 80], [85, 80.5], better="higher", tol=1)
    assert shares == metrics.Pareto(better=0.5, worse=0, equal=0.5)


def test_pareto_needs_the_same_clients_and_numbers():
    with pytest.raises(InputError, match="baseline"):
        metrics.pareto([1], [1, 2], better="lower")
    with pytest.raises(InputError, match="tol"):
        metrics.pareto([1], [1], better="lower", tol=-1)
    assert math.isnan(metrics.pareto([1, math.nan], [1, 2], better="lower").equal)


@pytest.mark.parametrize(
    ("gaps", "baseline", "verdict"),
    [
        # variance 0.08 -> 0.005, the worst stays at 0.4, the best rises from 0 to 0.3
        ([0.3, 0.4], [0.0, 0.4], "levelling_down"),
        # variance 0.08 -> 0.005, both rise
        ([0.4, 0.5], [0.0, 0.4], "levelling_down"),
        # variance 0.08 -> 0.02, the worst falls from 0.4 to 0.3 although the best rises
        ([0.1, 0.3], [0.0, 0.4], "genuine"),
        # variance rises
        ([0.0, 0.8], [0.0, 0.4], "none"),
        # the best rises and the worst too, but they are further apart
        ([0.1, 0.8], [0.0, 0.4], "none"),
        # nothing changes
        ([0.0, 0.4], [0.0, 0.4], "none"),
        # variance 0.053 -> 0.04, best and worst stay where they are
        ([0.0, 0.2, 0.4], [0.0, 0.0, 0.4], "none"),
    ],
)
def test_levelling_down_is_told_from_a_genuine_gain(gaps, baseline, verdict):
    assert metrics.levelling_down(gaps, baseline).verdict == verdict


def test_levelling_down_says_by_how_much():
    found = metrics.levelling_down([0.3, 0.4], [0.0, 0.5])
    assert found.dV == pytest.approx(0.005 - 0.125)
    assert found.dW == pytest.approx(-0.1)
    assert found.dB == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("gaps", "baseline"), [([0.1], [0.4]), ([], []), ([0.1, math.nan], [0.1, 0.4])]
)
def test_levelling_down_needs_a_variance(gaps, baseline):
    found = metrics.levelling_down(gaps, baseline)
    assert found.verdict == "none"
    assert math.isnan(found.dV)


@pytest.mark.parametrize(
    "statistic",
    [
        metrics.gap_variance,
        metrics.gap_variance_pop,
        metrics.max_gap,
        metrics.min_gap,
        metrics.gap_range,
        metrics.participation_rate,
        metrics.mean_benefit,
    ],
)
def test_no_client_and_a_missing_gap_give_nan(statistic):
    assert math.isnan(statistic([]))
    assert math.isnan(statistic([0.1, math.nan]))
