"""Intervals of accuracies and of metrics, client by client."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.metrics.metric import Metric, value_of

Columns = dict[str, list[float]]
MANY = 1000
"""Examples from which on the percentile bootstrap does: what BCa corrects has vanished there."""


def accuracy_intervals(
    rows: pd.DataFrame, owner: npt.NDArray[np.int64], clients: int, confidence: float
) -> Columns:
    """Return the columns of the accuracy, with Wilson's intervals."""
    from scipy import stats  # slow to import, so only when asked for

    right = _outputs(rows).argmax(1) == rows["target"].to_numpy()
    n, hits = np.bincount(owner, minlength=clients), np.bincount(owner, right, clients)
    found = [
        stats.binomtest(int(k), int(m)).proportion_ci(confidence, method="wilson")
        for k, m in zip(hits, n, strict=True)
    ]
    return {
        "accuracy": [float(k / m) for k, m in zip(hits, n, strict=True)],
        "accuracy_low": [float(each.low) for each in found],
        "accuracy_high": [float(each.high) for each in found],
    }


def metric_intervals(
    metric: Metric,
    rows: pd.DataFrame,
    owner: npt.NDArray[np.int64],
    clients: int,
    confidence: float,
    resamples: int,
    seed: int,
) -> Columns:
    """Return the columns of a metric, with intervals of the BCa bootstrap."""
    said = _outputs(rows)
    output = said[:, 0] if said.shape[1] == 1 else said
    target = rows["target"].to_numpy() if "target" in rows else np.zeros(len(rows))
    found: Columns = {metric.name: [], f"{metric.name}_low": [], f"{metric.name}_high": []}
    for client in range(clients):
        mine = owner == client
        draws = np.random.default_rng((seed, client))
        numbers = bootstrap(metric, target[mine], output[mine], confidence, resamples, draws)
        for column, number in zip(found.values(), numbers, strict=True):
            column.append(number)
    return found


def bootstrap(
    metric: Metric,
    target: npt.NDArray[Any],
    output: npt.NDArray[np.float64],
    confidence: float,
    resamples: int,
    draws: np.random.Generator,
) -> tuple[float, float, float]:
    """Return a metric's value and its interval: BCa, where that is not defined percentiles."""
    from scipy import stats

    value, n = value_of(metric, target, output), len(target)
    if np.isnan(value) or not resamples or n < 2:
        return value, np.nan, np.nan

    def again(places: npt.NDArray[np.int64]) -> float:
        return metric(target[places], output[places])

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of samples on which the metric is not defined
        found = stats.bootstrap(
            (np.arange(n),),
            again,
            vectorized=False,
            n_resamples=resamples,
            confidence_level=confidence,
            method="BCa" if n < MANY else "percentile",
            rng=draws,
        )
    low, high = (float(end) for end in found.confidence_interval)
    if np.isnan(low) or np.isnan(high):
        sound = found.bootstrap_distribution[~np.isnan(found.bootstrap_distribution)]
        tail = (1 - confidence) / 2
        low, high = np.quantile(sound, [tail, 1 - tail]) if len(sound) else (np.nan, np.nan)
    return value, float(low), float(high)


def _outputs(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    return rows[[name for name in rows if str(name).startswith("output")]].to_numpy(np.float64)
