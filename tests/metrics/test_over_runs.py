"""Numbers over repeated runs and over the rounds of one run."""

from __future__ import annotations

import math

import pytest

from fedparity import metrics
from fedparity.errors import InputError


def test_runs_are_reported_with_the_sample_standard_deviation():
    # mean 4, deviations -2, 0, 2: sqrt(8 / 2)
    assert metrics.over_runs([2, 4, 6]) == metrics.OverRuns(mean=4, std=2, runs=3)


def test_a_single_run_has_no_standard_deviation():
    result = metrics.over_runs([2])
    assert (result.mean, result.runs) == (2, 1)
    assert math.isnan(result.std)


def test_what_the_seed_does_to_both_cancels_in_pairs():
    assert metrics.paired([11, 21, 31], [10, 20, 30]) == metrics.OverRuns(mean=1, std=0, runs=3)
    with pytest.raises(InputError, match="baseline"):
        metrics.paired([1, 2], [1])


def test_a_failed_run_is_not_dropped():
    result = metrics.paired([11, math.nan], [10, 20])
    assert math.isnan(result.mean)
    assert result.runs == 2


def test_the_mean_of_the_last_evaluations():
    assert metrics.mean_of_last([9, 1, 2, 3, 4, 5]) == 3
    assert metrics.mean_of_last([1, 3]) == 2
    with pytest.raises(InputError, match="count"):
        metrics.mean_of_last([1], 0)


def test_the_best_round_is_chosen_on_validation():
    test, validation = [50, 90, 70], [60, 60, 80]
    assert metrics.value_at_best(test, validation) == 70
    assert metrics.value_at_best(test, validation, better="lower") == 50
    assert metrics.value_at_best(test, [math.nan, 60, math.nan]) == 90


def test_without_validation_there_is_no_best_round():
    assert math.isnan(metrics.value_at_best([1, 2], [math.nan, math.nan]))
    assert math.isnan(metrics.value_at_best([], []))
    with pytest.raises(InputError, match="validation"):
        metrics.value_at_best([1, 2], [1])
