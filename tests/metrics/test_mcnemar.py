"""McNemar's test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedparity import metrics
from fedparity.errors import InputError


def test_few_differences_are_tested_exactly():
    # 2 P[Bin(9, 1/2) <= 1] = 2 (1 + 9) / 512
    result = metrics.mcnemar_from_counts(1, 8)
    assert result.exact
    assert result.pvalue == pytest.approx(20 / 512)


def test_many_differences_are_tested_by_chi_square_with_continuity():
    # (|10 - 30| - 1)^2 / 40 = 361 / 40
    result = metrics.mcnemar_from_counts(10, 30)
    assert not result.exact
    assert result.statistic == pytest.approx(9.025)
    assert result.pvalue == pytest.approx(stats.chi2.sf(9.025, 1))


def test_twenty_five_differences_are_many():
    assert metrics.mcnemar_from_counts(12, 12).exact
    assert not metrics.mcnemar_from_counts(12, 13).exact
    assert metrics.mcnemar_from_counts(12, 13, exact=True).exact


@pytest.mark.parametrize(("b", "c"), [(0, 5), (3, 3), (7, 2), (20, 4), (30, 12)])
def test_the_exact_p_value_is_the_binomial_tests(b, c):
    expected = stats.binomtest(b, b + c, 0.5).pvalue
    assert metrics.mcnemar_from_counts(b, c, exact=True).pvalue == pytest.approx(expected)


def test_equal_counts_say_nothing_and_the_correction_does_not_overshoot():
    assert metrics.mcnemar_from_counts(50, 50).statistic == 0
    assert metrics.mcnemar_from_counts(50, 50).pvalue == 1
    assert metrics.mcnemar_from_counts(4, 4).pvalue == 1


def test_models_that_never_differ_have_p_value_one():
    result = metrics.mcnemar([1, 1, 0], [1, 1, 0])
    assert (result.only_first, result.only_second) == (0, 0)
    assert (result.statistic, result.pvalue) == (0, 1)
    assert metrics.mcnemar([], []).pvalue == 1


def test_only_the_examples_on_which_the_models_differ_count():
    first = np.array([True, True, True, False, True, False])
    second = np.array([True, False, False, True, True, False])
    result = metrics.mcnemar(first, second)
    assert (result.only_first, result.only_second) == (2, 1)


def test_it_is_not_a_test_of_independence():
    # both models fail on the same 100 hard examples, and on 30 more each: neither is better
    both_right, only_first, only_second, both_wrong = 840, 30, 30, 100
    association = stats.chi2_contingency([[both_right, only_first], [only_second, both_wrong]])
    assert association.pvalue < 1e-50
    assert metrics.mcnemar_from_counts(only_first, only_second).pvalue == 1


def test_answers_on_different_examples_are_refused():
    with pytest.raises(InputError, match="different examples"):
        metrics.mcnemar([True], [True, False])
    with pytest.raises(InputError, match="true or false"):
        metrics.mcnemar([3, 1], [1, 1])
    with pytest.raises(InputError, match=">= 0"):
        metrics.mcnemar_from_counts(-1, 2)
