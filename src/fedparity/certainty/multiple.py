"""Many tests at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike


def holm(pvalues: ArrayLike) -> npt.NDArray[np.float64]:
    """Return p-values adjusted after Holm: ``max_{j <= i} min(1, (K - j + 1) p_(j))``.

    Whoever rejects all that are at most alpha rejects a true hypothesis with probability at most
    alpha, however the tests depend on each other. NaN are no tests and stay NaN.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(6).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(pvalues, np.float64)
    adjusted = np.full(given.shape, np.nan)
    places = np.flatnonzero(~np.isnan(given))
    order = places[np.argsort(given[places], kind="stable")]
    raised = given[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(raised)) if len(order) else raised
    return adjusted
