"""McNemar's test: do two models err on different examples, one more often than the other?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedparity.errors import InputError

FEW = 25


@dataclass(frozen=True)
class McNemar:
    """The result of the test.

    Attributes
    ----------
    only_first, only_second
        ``b`` and ``c``: examples that only the first, only the second model gets right.
    statistic
        ``max(0, |b - c| - 1)^2 / (b + c)``, chi-square with continuity correction; 0 if b + c = 0.
    pvalue
        Two-sided.
    exact
        Whether the p-value is the exact binomial one.
    """

    only_first: int
    only_second: int
    statistic: float
    pvalue: float
    exact: bool


def mcnemar(first: ArrayLike, second: ArrayLike, *, exact: bool | None = None) -> McNemar:
    """Test whether two models are right equally often on the same test examples.

    With b and c the numbers of examples that only the first, only the second model gets right,
    the p-value is ``min(1, 2 P[Bin(b + c, 1/2) <= min(b, c)])`` if ``b + c < 25``, else that of
    ``max(0, |b - c| - 1)^2 / (b + c)`` under chi-square with one degree of freedom. It is 1 if
    ``b + c = 0``. The examples both models get right, or both wrong, do not enter.

    Parameters
    ----------
    first, second
        Whether each model is right on each example, in the same order of examples.
    exact
        True or False to choose the binomial or the chi-square p-value; None chooses by b + c.

    Notes
    -----
    A test of *independence* on the 2x2 table of right and wrong, as found with FedPGVC's code, is
    another thing: two models nearly always err on the same hard examples, so its p-value is tiny
    whichever of them is better.
    """
    one, two = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != two.shape:
        raise InputError(f"the models answer on different examples: {one.shape} and {two.shape}")
    if one.size and not (np.isin(one, (0, 1)).all() and np.isin(two, (0, 1)).all()):
        raise InputError("whether a model is right on an example is true or false")
    one, two = one.astype(bool), two.astype(bool)
    return mcnemar_from_counts(int(np.sum(one & ~two)), int(np.sum(two & ~one)), exact=exact)


def mcnemar_from_counts(only_first: int, only_second: int, *, exact: bool | None = None) -> McNemar:
    """Test from the two counts b and c of :func:`mcnemar`."""
    from scipy.special import bdtr, chdtrc  # takes a quarter of a second, so only when asked for

    b, c = only_first, only_second
    if b < 0 or c < 0:
        raise InputError(f"counts are numbers >= 0, got {b} and {c}")
    binomial = b + c < FEW if exact is None else exact
    if b + c == 0:
        return McNemar(b, c, statistic=0.0, pvalue=1.0, exact=binomial)
    statistic = max(0, abs(b - c) - 1) ** 2 / (b + c)
    tail = 2 * bdtr(min(b, c), b + c, 0.5) if binomial else chdtrc(1, statistic)
    return McNemar(b, c, statistic, pvalue=min(1.0, float(tail)), exact=binomial)
