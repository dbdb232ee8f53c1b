"""Intervals and tests over seeds, against scipy."""

from __future__ import annotations

import numpy as np
from scipy import stats

from fedparity.joining.verdicts import below_zero, interval

DRAWN = np.random.default_rng(0).normal(-0.5, 1, (6, 3))


def test_the_interval_is_students():
    mean, low, high = interval(DRAWN, 0.9)
    scale = DRAWN.std(axis=0, ddof=1) / np.sqrt(6)
    np.testing.assert_allclose((low, high), stats.t.interval(0.9, 5, mean, scale))


def test_the_test_is_students_one_sided():
    told = stats.ttest_1samp(DRAWN, 0, alternative="less").pvalue
    np.testing.assert_allclose(below_zero(DRAWN), told)


def test_nothing_is_told_of_one_seed_or_of_a_run_that_diverged():
    assert below_zero(DRAWN[:1]).tolist() == [1, 1, 1]
    assert np.isnan(interval(DRAWN[:1], 0.95)[1]).all()
    broken = DRAWN.copy()
    broken[0, 0] = np.nan
    assert below_zero(broken)[0] == 1


def test_of_the_same_difference_on_every_seed_nothing_is_told():
    same = np.array([[-0.1, 0.1, 0.0]] * 3)
    assert below_zero(same).tolist() == [1, 1, 1]
    assert np.isnan(interval(same, 0.95)[1:]).all()


def test_splits_of_the_same_examples_have_a_larger_error():
    # variance of the mean: (1/6 + 1/2) s^2, which is 4 times that of independent seeds
    _, low, high = interval(DRAWN, 0.9)
    _, wide_low, wide_high = interval(DRAWN, 0.9, overlap=0.5)
    np.testing.assert_allclose(wide_high - wide_low, 2 * (high - low))
    t = stats.ttest_1samp(DRAWN, 0).statistic
    np.testing.assert_allclose(below_zero(DRAWN, 0.5), stats.t.cdf(t / 2, 5))
