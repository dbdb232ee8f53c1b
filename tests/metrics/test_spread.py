"""Statistics of how a number is spread over clients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedparity import metrics
from fedparity.errors import InputError

A = np.array([90.0, 80.0, 70.0, 60.0])

accuracies = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=12)
quick = settings(max_examples=60, deadline=None)

ONE_ARGUMENT = [
    metrics.client_mean,
    metrics.variance,
    metrics.sample_variance,
    metrics.std,
    metrics.worst_client,
    metrics.coefficient_of_variation,
    metrics.angle_to_uniform,
    metrics.kl_to_uniform,
    metrics.entropy,
    metrics.jain,
    metrics.gini,
    metrics.parity_gap,
]
RELATIVE = [
    metrics.coefficient_of_variation,
    metrics.angle_to_uniform,
    metrics.kl_to_uniform,
    metrics.entropy,
    metrics.jain,
    metrics.gini,
]


def test_the_variances_of_the_fixture():
    # mean 75, deviations 15, 5, -5, -15, their squares add up to 500
    assert metrics.client_mean(A) == 75
    assert metrics.variance(A) == pytest.approx(500 / 4)
    assert metrics.sample_variance(A) == pytest.approx(500 / 3)
    assert metrics.std(A) == pytest.approx(math.sqrt(125))


def test_the_relative_spreads_of_the_fixture():
    # sum 300, sum of squares 8100 + 6400 + 4900 + 3600 = 23000
    assert metrics.jain(A) == pytest.approx(300**2 / (4 * 23000))
    assert metrics.jain(A) == pytest.approx(0.978261, abs=5e-7)
    assert metrics.coefficient_of_variation(A) == pytest.approx(0.149071, abs=5e-7)
    assert metrics.angle_to_uniform(A) == pytest.approx(8.478713, abs=5e-7)
    assert metrics.kl_to_uniform(A) == pytest.approx(0.011180, abs=5e-7)
    # (-3*60 - 1*70 + 1*80 + 3*90) / (4 * 300) = 100 / 1200
    assert metrics.gini(A) == pytest.approx(100 / 1200)


def test_the_angle_of_the_losses_of_the_fixture():
    assert metrics.angle_to_uniform([1, 2, 0.5]) == pytest.approx(28.125506, abs=5e-7)


def test_the_var_columns_of_fedfv_are_standard_deviations():
    # mean 80.42, deviations -16.16, 6.61, 9.55, squares 261.1456 + 43.6921 + 91.2025 = 396.0402
    row = [64.26, 87.03, 89.97]
    assert metrics.std(row) == pytest.approx(11.49, abs=0.005)
    assert metrics.variance(row) == pytest.approx(396.0402 / 3)


def test_angle_and_kl_of_the_mean_and_variance_printed_for_fedavg_on_fashionmnist():
    # two clients at mean +- std have that mean and variance: CV = sqrt(62.44) / 86.49 = 0.0914
    row = 86.49 + math.sqrt(62.44) * np.array([-1, 1])
    assert metrics.angle_to_uniform(row) == pytest.approx(5.2, abs=0.05)
    assert metrics.kl_to_uniform(row) == pytest.approx(0.0042, abs=5e-5)


def test_a_share_holds_the_rounded_down_number_of_clients():
    values = np.arange(25.0)
    assert metrics.worst_share(values, 0.1) == pytest.approx(0.5)  # 2.5 clients: 0 and 1
    assert metrics.best_share(values, 0.1) == pytest.approx(23.5)
    assert metrics.worst_share(values, 0.05) == 0  # 1.25 clients
    assert metrics.worst_share(values, 1) == metrics.client_mean(values)


def test_a_share_holds_at_least_one_client():
    assert metrics.worst_share([3, 1, 2], 0.1) == 1
    assert metrics.best_share([3, 1, 2], 0.1) == 3


def test_a_share_is_not_a_client_short_by_rounding():
    # 0.29 * 100 is 28.999999999999996: 29 clients, 0 to 28
    assert metrics.worst_share(np.arange(100.0), 0.29) == pytest.approx(14)


def test_the_worst_losses_are_the_highest():
    losses = [0.1, 0.2, 0.9]
    assert metrics.worst_share(losses, 0.1, better="lower") == 0.9
    assert metrics.best_share(losses, 0.1, better="lower") == 0.1
    assert metrics.worst_client(losses, better="lower") == 0.9
    assert metrics.worst_client(losses) == 0.1


def test_shares_can_be_weighted_by_examples():
    # worst half: 60 with 30 examples, 70 with 10
    assert metrics.worst_share(A, 0.5, weights=[1, 1, 10, 30]) == pytest.approx(62.5)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, math.nan])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(InputError, match=r"\(0, 1\]"):
        metrics.worst_share(A, share)


def test_the_parity_gap_is_best_tenth_minus_worst_tenth():
    assert metrics.parity_gap(A) == 30


def test_pooled_counts_examples_and_client_mean_counts_clients():
    assert metrics.pooled([90, 70], [30, 10]) == pytest.approx(85)
    assert metrics.client_mean([90, 70]) == 80


def test_weighted_variance_is_that_of_the_examples():
    # 30 examples at 90, 10 at 70: mean 85, (3 * 25 + 225) / 4 = 75
    assert metrics.weighted_variance([90, 70], [30, 10]) == pytest.approx(75)
    assert metrics.weighted_variance([90, 70], [30, 10]) == pytest.approx(
        np.var([90.0] * 30 + [70.0] * 10)
    )


def test_weights_that_are_equal_change_nothing():
    assert metrics.weighted_variance(A, [5] * 4) == pytest.approx(metrics.variance(A))
    assert metrics.pooled(A, [5] * 4) == pytest.approx(metrics.client_mean(A))


def test_weights_must_match_and_be_positive():
    with pytest.raises(InputError, match="shape"):
        metrics.pooled([1, 2], [1])
    with pytest.raises(InputError, match=">= 0"):
        metrics.pooled([1, 2], [1, -1])
    assert math.isnan(metrics.pooled([1, 2], [0, 0]))


def test_balanced_accuracy_is_the_mean_recall_of_the_classes_that_occur():
    # class 0: 3 of 4 right, class 1: 1 of 2, class 2 is predicted but does not occur
    labels, predictions = [0, 0, 0, 0, 1, 1], [0, 0, 0, 2, 1, 0]
    assert metrics.balanced_accuracy(labels, predictions) == pytest.approx((0.75 + 0.5) / 2)
    assert metrics.balanced_accuracy(["a", "b"], ["a", "a"]) == 0.5
    assert math.isnan(metrics.balanced_accuracy([], []))
    with pytest.raises(InputError, match="shape"):
        metrics.balanced_accuracy([1, 2], [1])


@pytest.mark.parametrize("statistic", ONE_ARGUMENT)
def test_no_client_and_a_missing_number_give_nan(statistic):
    assert math.isnan(statistic([]))
    assert math.isnan(statistic([90, math.nan, 70]))


@pytest.mark.parametrize("statistic", ONE_ARGUMENT)
def test_a_matrix_is_refused(statistic):
    with pytest.raises(InputError, match="one number a client"):
        statistic([[1.0, 2.0]])


def test_a_single_client_is_even_and_has_no_sample_variance():
    assert metrics.variance([70]) == 0
    assert math.isnan(metrics.sample_variance([70]))
    assert metrics.gini([70]) == metrics.kl_to_uniform([70]) == metrics.entropy([70]) == 0
    assert metrics.jain([70]) == 1
    assert metrics.worst_share([70], 0.1) == 70


@pytest.mark.parametrize("values", [[0, 0, 0], [70, 70, 70], [1e-300] * 3, [0.1] * 49])
def test_equal_values_are_even_even_if_all_are_zero(values):
    assert metrics.gini(values) == pytest.approx(0, abs=1e-15)
    assert metrics.coefficient_of_variation(values) == 0
    assert metrics.angle_to_uniform(values) == 0
    assert metrics.kl_to_uniform(values) == 0
    assert metrics.jain(values) == 1
    assert metrics.entropy(values) == pytest.approx(math.log(len(values)))


def test_one_client_that_has_all_is_the_most_uneven():
    values = [0, 0, 0, 7]
    assert metrics.gini(values) == pytest.approx(3 / 4)
    assert metrics.jain(values) == pytest.approx(1 / 4)
    assert metrics.kl_to_uniform(values) == pytest.approx(math.log(4))
    assert metrics.entropy(values) == 0
    assert metrics.angle_to_uniform(values) == pytest.approx(60)  # arccos(1/2)


@pytest.mark.parametrize("statistic", RELATIVE)
def test_relative_spread_of_negative_numbers_is_refused(statistic):
    with pytest.raises(InputError, match=">= 0"):
        statistic([1, -1])


@quick
@given(accuracies)
def test_angle_jain_and_cv_are_one_measure(values):
    cv = metrics.coefficient_of_variation(values)
    angle = metrics.angle_to_uniform(values)
    assert angle == pytest.approx(math.degrees(math.atan(cv)))
    assert metrics.jain(values) == pytest.approx(1 / (1 + cv**2))
    assert metrics.jain(values) == pytest.approx(math.cos(math.radians(angle)) ** 2)


@quick
@given(accuracies.filter(lambda a: max(a) > 1e-100))
def test_the_formulas_as_they_are_written(values):
    a = np.asarray(values)
    clients = a.size
    cosine = a.sum() / (math.sqrt(clients) * np.linalg.norm(a))
    angle = math.degrees(math.acos(min(1.0, cosine)))
    assert metrics.angle_to_uniform(a) == pytest.approx(angle, abs=1e-5)
    pairs = np.abs(a[:, None] - a[None, :]).sum() / (2 * clients**2 * a.mean())
    assert metrics.gini(a) == pytest.approx(pairs, abs=1e-12)
    shares = [q for q in a / a.sum() if q > 0]
    divergence = sum(q * math.log(clients * q) for q in shares)
    assert metrics.kl_to_uniform(a) == pytest.approx(divergence, abs=1e-12)


@quick
@given(accuracies)
def test_kl_and_entropy_add_up_to_ln_k(values):
    both = metrics.kl_to_uniform(values) + metrics.entropy(values)
    assert both == pytest.approx(math.log(len(values)), abs=1e-12)


@quick
@given(st.lists(st.floats(-0.01, 0.01), min_size=2, max_size=12))
def test_kl_is_half_the_squared_cv_where_that_is_small(deviations):
    values = 75 * (1 + np.array(deviations))
    squared = metrics.coefficient_of_variation(values) ** 2
    # u ln u = e + e^2/2 - e^3/6 + ..., and |e| is at most about 0.02
    assert metrics.kl_to_uniform(values) == pytest.approx(squared / 2, abs=0.01 * squared + 1e-14)


@quick
@given(accuracies, st.floats(0.01, 1000), st.randoms(use_true_random=False))
def test_relative_spread_sees_neither_the_unit_nor_the_order(values, unit, random):
    scaled = [unit * value for value in values]
    random.shuffle(scaled)
    for statistic in RELATIVE:
        assert statistic(scaled) == pytest.approx(statistic(values), abs=1e-6)


@quick
@given(accuracies)
def test_the_bounds(values):
    clients = len(values)
    assert -1e-12 <= metrics.gini(values) <= (clients - 1) / clients + 1e-12
    assert 1 / clients - 1e-12 <= metrics.jain(values) <= 1 + 1e-12
    assert -1e-12 <= metrics.kl_to_uniform(values) <= math.log(clients) + 1e-12
    worst, mean, best = (
        metrics.worst_share(values, 0.1),
        metrics.client_mean(values),
        metrics.best_share(values, 0.1),
    )
    assert worst - 1e-9 <= mean <= best + 1e-9
