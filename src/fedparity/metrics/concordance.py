"""How well expected times are in the order of the true ones, some of which are only bounds."""

from __future__ import annotations

import numpy as np

from fedparity.metrics.quality import Output, Target


def c_index(target: Target, output: Output) -> float:
    """Share of the pairs whose order is known that are told in that order; a tie counts half.

    The targets are ``(time, event)``; of two examples it is known that the first ends earlier if
    its event came, at a time before the other's or at the same time as the other was lost from
    sight. (Harrell, Califf, Pryor, Lee, Rosati. Evaluating the yield of medical tests. JAMA 1982.)
    """
    time, event = target[:, 0].astype(np.float64), target[:, 1].astype(np.float64) > 0
    right, pairs = 0.0, 0
    for place in np.flatnonzero(event):
        later = (time > time[place]) | ((time == time[place]) & ~event)
        above = output[later] - output[place]
        right += float((above > 0).sum() + 0.5 * (above == 0).sum())
        pairs += int(later.sum())
    return right / pairs if pairs else np.nan
