"""Who certainly gains from joining and who certainly pays, from losses example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.certainty.means import Means
from fedparity.certainty.metrics import accuracy_intervals, metric_intervals
from fedparity.certainty.multiple import holm
from fedparity.certainty.predictions import KEYS, in_use
from fedparity.errors import InputError
from fedparity.metrics.metric import Metric

GAINS: Final = "certainly gains"
PAYS: Final = "certainly pays"
UNTOLD: Final = "cannot be told"
VERDICTS = (GAINS, PAYS, UNTOLD)
FEW = 25
"""Test examples under which nothing is certain: intervals of so few skewed losses miss too often,
and the standard error of an accuracy may exceed ten points."""
CONFIDENCE = 0.95
RESAMPLES = 2000
"""Bootstrap samples of an interval."""


def client_certainty(
    predictions: pd.DataFrame,
    *,
    lstar: Mapping[str, float] | None = None,
    split: str = "test",
    metrics: Sequence[Metric] = (),
    accuracy: bool = False,
    confidence: float = CONFIDENCE,
    simultaneous: bool = False,
    limit: float = 0.0,
    adjusted: bool = True,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a client: loss, loss gap and metrics with intervals, and a verdict.

    Parameters
    ----------
    predictions
        One row an example and model: see :attr:`fedparity.Result.predictions`.
    lstar
        L* by client, taken as exact, where there are no models that clients trained alone.
    split
        ``validation`` or ``test``.
    metrics
        What is computed beside the loss.
    accuracy
        Whether the outputs are probabilities of classes, of which the likeliest is right or wrong.
    confidence
        Of the intervals and verdicts, such as 0.95.
    simultaneous
        Whether all intervals of a column hold together with this confidence (Bonferroni), or each
        by itself.
    limit
        The gap that ``gap_p`` and the verdict compare with.
    adjusted
        Whether ``gap_p`` is adjusted over all clients, or is that of each client by itself.
    resamples, seed
        Of the bootstrap of metrics; 0 resamples leave out their intervals.

    Notes
    -----
    Columns ``client``, ``n``, ``few``; of each number its value and, with ``_low`` and ``_high``,
    its interval; ``gap_p``, the p-value of no gap, adjusted after Holm over all clients with at
    least :data:`FEW` examples; ``verdict``. The gap is paired: the differences of the losses of two
    models on the same example. A verdict is certain where ``gap_p <= 1 - confidence``, so that with
    this confidence not one of the clients is called wrongly. It is of the two models at hand: that
    other training, or another seed, would end elsewhere is beyond it.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence is a number between 0 and 1, such as 0.95, got {confidence}")
    rows = predictions[predictions["split"] == split]
    if rows.empty:
        raise InputError(f"no predictions of {split} examples are kept")
    used, alone = in_use(predictions, split), rows[rows["model"].astype(str) == "alone"]
    names, owner = _clients(used)
    count = len(names)
    each = 1 - (1 - confidence) / count if simultaneous else confidence
    losses = used["loss"].to_numpy(np.float64)
    of_loss = Means.of(losses, owner, count)
    table = pd.DataFrame({"client": names, "n": of_loss.n, "few": of_loss.n < FEW})
    table = _with(table, "loss", of_loss, each)
    best = optima(used, alone, owner, names, lstar)
    if best is not None:
        of_gap = Means.of(losses - best, owner, count)
        table = _with(table, "gap", of_gap, each)
        p = np.where(of_gap.n < FEW, np.nan, of_gap.pvalues(limit))
        table["gap_p"] = holm(p) if adjusted else p
        table["verdict"] = verdicts(of_gap.mean - limit, table["gap_p"].to_numpy(), 1 - confidence)
    if accuracy:
        table = table.assign(**accuracy_intervals(used, owner, count, each))
    for metric in metrics:
        found = metric_intervals(metric, used, owner, count, each, resamples, seed)
        table = table.assign(**found)
    return table


def verdicts(
    gaps: npt.NDArray[np.float64], adjusted: npt.NDArray[np.float64], alpha: float
) -> npt.NDArray[np.object_]:
    """Return the word on each gap from its adjusted p-value."""
    sure = adjusted <= alpha  # NaN is never sure
    found = np.where(sure, np.where(gaps < 0, GAINS, PAYS), UNTOLD)
    return found.astype(object)


def _clients(rows: pd.DataFrame) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the clients that have examples, in their order, and whose each example is."""
    codes, names = pd.factorize(rows["client"].astype(str))
    return [str(name) for name in names], codes.astype(np.int64)


def _with(table: pd.DataFrame, name: str, means: Means, confidence: float) -> pd.DataFrame:
    low, high = means.interval(confidence)
    return table.assign(**{name: means.mean, f"{name}_low": low, f"{name}_high": high})


def optima(
    used: pd.DataFrame,
    alone: pd.DataFrame,
    owner: npt.NDArray[np.int64],
    names: Sequence[str],
    lstar: Mapping[str, float] | None,
) -> npt.NDArray[np.float64] | None:
    """Return what a client alone loses on every example used, or None where nobody knows."""
    if len(alone):
        ours, theirs = (t[KEYS].astype({"client": str}) for t in (used, alone))
        both = ours.merge(theirs.assign(lstar=alone["loss"]), on=KEYS, how="left", validate="1:1")
        return both["lstar"].to_numpy(np.float64)
    if lstar is None:
        return None
    return np.asarray([lstar.get(name, np.nan) for name in names], np.float64)[owner]
