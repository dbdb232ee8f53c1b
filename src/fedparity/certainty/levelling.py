"""What a run changes for each client against another one, and how far apart gaps lie in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.certainty.clients import FEW, optima, verdicts
from fedparity.certainty.means import Means, student
from fedparity.certainty.multiple import holm
from fedparity.certainty.predictions import KEYS, beside, in_use

Vector = npt.NDArray[np.float64]


class Change(NamedTuple):
    """What changes from one run to another."""

    clients: pd.DataFrame
    """One row a client: ``client``, ``n``, ``few``, the ``change`` of its loss with the ends
    ``low`` and ``high`` of an interval that holds for all clients together, and a ``verdict``."""
    variance: tuple[float, float, float]
    """The change of the variance of the loss gaps over the clients, and its interval."""


def change(
    now: pd.DataFrame,
    before: pd.DataFrame,
    *,
    lstar: Mapping[str, float] | None = None,
    split: str = "test",
    confidence: float = 0.95,
) -> Change:
    """Compare two runs' predictions of the same examples.

    Parameters
    ----------
    now, before
        Tables of :attr:`fedparity.Result.predictions`. Gaps of both are against the models that
        clients trained alone in ``now``; without these against ``lstar``; without that they are
        the losses.
    lstar
        L* by client, taken as exact.
    split
        ``validation`` or ``test``.
    confidence
        Of the intervals, and of the verdicts over all clients together (Holm).

    Notes
    -----
    With mean gaps g_k now and h_k before, of K clients with n_k examples, the change of the sample
    variance is estimated without the part that noise adds to each variance: less
    ``mean_k(s_k(g)^2 / n_k) - mean_k(s_k(h)^2 / n_k)``. Its standard error is that of
    ``2 / (K - 1) sum_k [(g_k - mean g) g_k - (h_k - mean h) h_k]``, the differential, in which the
    deviations of the means are as noisy as they are, so it is rather too large. It is NaN for one
    client, and where a client has fewer than :data:`FEW` examples.
    """
    ours = in_use(now, split)
    columns = [*KEYS, "loss", *(["target"] if "target" in now and "target" in before else [])]
    both = beside(ours[columns], in_use(before, split)[columns])
    codes, found = pd.factorize(both["client"])
    owner, names = codes.astype(np.int64), [str(name) for name in found]
    after, earlier = (both[f"loss_{k}"].to_numpy(np.float64) for k in (1, 2))
    means = Means.of(after - earlier, owner, len(names))
    few = means.n < FEW
    adjusted = holm(np.where(few, np.nan, means.pvalues()))
    low, high = means.interval(1 - (1 - confidence) / len(names))
    table = pd.DataFrame({"client": names, "n": means.n, "few": few, "change": means.mean})
    words = verdicts(means.mean, adjusted, 1 - confidence)
    table = table.assign(low=low, high=high, verdict=words)
    alone = now[(now["split"] == split) & (now["model"] == "alone")]
    best = optima(both, alone, owner, names, lstar)
    base = 0.0 if best is None else best
    return Change(table, _variance(after - base, earlier - base, owner, len(names), confidence))


def _variance(
    now: Vector, before: Vector, owner: npt.NDArray[np.int64], clients: int, confidence: float
) -> tuple[float, float, float]:
    """Return the change of the variance of mean gaps over clients, with its interval."""
    if clients < 2:
        return np.nan, np.nan, np.nan
    slope, apart = np.zeros(len(now)), 0.0
    for sign, gaps in ((1, now), (-1, before)):
        means = Means.of(gaps, owner, clients)
        off = means.mean - means.mean.mean()
        apart += sign * float((off**2).sum() / (clients - 1) - (means.std**2 / means.n).mean())
        slope += sign * 2 / (clients - 1) * off[owner] * gaps
    moved = Means.of(slope, owner, clients)
    if (moved.n < FEW).any():
        return apart, np.nan, np.nan
    error = np.sqrt((moved.std**2 / moved.n).sum())
    low, high = student(np.asarray(apart), error, int(moved.n.min()), confidence)
    return apart, float(low), float(high)
