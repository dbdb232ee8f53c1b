"""Intervals over seeds, and what may be said of many differences at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Values = npt.NDArray[np.float64]


def interval(values: Values, confidence: float) -> tuple[Values, Values, Values]:
    """Return mean and ends of Student's interval over the first axis; no ends for one seed.

    >>> mean, low, high = interval(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> print(f"{mean:.3f} {low:.3f} {high:.3f}")
    2.000 -0.484 4.484
    """
    mean = values.mean(axis=0)
    if len(values) < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * _error(values)
    return mean, mean - half, mean + half


def below_zero(values: Values) -> Values:
    """Return the p-values of Student's one-sided test that the means over seeds are below zero.

    1 where nothing can be told: of one seed, or where a loss is no number.
    """
    if len(values) < 2:
        return np.ones(values.shape[1:])
    mean, error = values.mean(axis=0), _error(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = stats.t.cdf(mean / error, len(values) - 1)
    p = np.where(error > 0, p, np.where(mean < 0, 0.0, 1.0))
    found: Values = np.where(np.isfinite(mean), p, 1.0)
    return found


def _error(values: Values) -> Values:
    spread: Values = values.std(axis=0, ddof=1)
    # a difference that is the same on all seeds but for rounding has no error
    spread = np.where(spread < 1e-12 * np.abs(values).max(axis=0), 0.0, spread)
    error: Values = spread / np.sqrt(len(values))
    return error
