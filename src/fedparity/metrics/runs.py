"""One number from many: over repeated runs, and over the rounds of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fedparity.errors import InputError
from fedparity.metrics.spread import client_mean, sample_variance
from fedparity.metrics.vectors import Direction, as_pair


@dataclass(frozen=True)
class OverRuns:
    """Mean and sample standard deviation (divisor R - 1) of one number over R runs."""

    mean: float
    std: float
    runs: int


def over_runs(values: ArrayLike) -> OverRuns:
    """``mean``, and ``sqrt((1/(R-1)) sum_r (v_r - mean)^2)``, NaN for a single run."""
    spread = float(np.sqrt(sample_variance(values)))
    return OverRuns(client_mean(values), spread, int(np.size(values)))


def paired(values: ArrayLike, baseline: ArrayLike) -> OverRuns:
    """Return :func:`over_runs` of the differences ``v_r - b_r``, run by run.

    Entry r of both must come from the same seed and the same split: what these contribute to the
    variation then cancels.
    """
    now, before = as_pair(values, baseline, what="baseline")
    return replace(over_runs(now - before), runs=int(np.size(values)))


def mean_of_last(values: Sequence[float], count: int = 5) -> float:
    """Mean over the last ``count`` evaluations (fewer if there are fewer)."""
    if count < 1:
        raise InputError(f"count is a whole number >= 1, got {count}")
    return client_mean(values[-count:])


def value_at_best(
    values: Sequence[float], validation: Sequence[float], *, better: Direction = "higher"
) -> float:
    """Return the value of the evaluation that is best on validation; the first one on a tie.

    The best *test* value over the rounds is not a result: the choice of the round has seen the
    test examples. NaN if validation never gave a number.
    """
    if len(values) != len(validation):
        raise InputError(f"{len(values)} values but {len(validation)} of validation")
    scores = np.asarray(validation, np.float64) * (1 if better == "higher" else -1)
    if scores.size == 0 or np.isnan(scores).all():
        return float("nan")
    return float(values[int(np.nanargmax(scores))])
