"""Intervals over seeds, and what may be said of many differences at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedparity.certainty.means import student

Values = npt.NDArray[np.float64]


def interval(
    values: Values, confidence: float, overlap: float = 0.0
) -> tuple[Values, Values, Values]:
    """Return mean and ends of Student's interval over the first axis.

    There are no ends (NaN) for one seed, or where all seeds have the same value: a seed that
    changes nothing says nothing of the next one.

    Parameters
    ----------
    values
        By seed, and whatever else.
    confidence
        Such as 0.95.
    overlap
        Test examples for each one of training, where seeds split the same examples anew: the
        variance of the mean of R seeds is then taken as ``(1/R + overlap) s^2``. 0 where seeds are
        independent.

    Examples
    --------
    >>> mean, low, high = interval(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> print(f"{mean:.3f} {low:.3f} {high:.3f}")
    2.000 -0.484 4.484

    References
    ----------
    C. Nadeau and Y. Bengio: Inference for the generalization error. Machine Learning 52 (2003),
    239-281.
    """
    mean = values.mean(axis=0)
    return mean, *student(mean, _error(values, overlap), len(values), confidence)


def below_zero(values: Values, overlap: float = 0.0) -> Values:
    """Return the p-values of Student's one-sided test that the means over seeds are below zero.

    1 where nothing can be told: of one seed, of a difference that is the same on all seeds, or
    where a loss is no number.
    """
    from scipy.special import stdtr

    mean, error = values.mean(axis=0), _error(values, overlap)
    p = stdtr(len(values) - 1, mean / error)
    found: Values = np.where(np.isfinite(p), p, 1.0)
    return found


def _error(values: Values, overlap: float) -> Values:
    """Return the standard error of the mean; NaN where seeds do not differ but for rounding."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    spread = values.std(axis=0, ddof=1)
    spread = np.where(spread <= 1e-12 * np.abs(values).max(axis=0), np.nan, spread)
    error: Values = spread * np.sqrt(1 / len(values) + overlap)
    return error
