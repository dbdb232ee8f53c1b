"""How groups inside clients fare: every metric by client and group, with counts and intervals.

The numbers are those of fairlearn's ``MetricFrame`` with the client as control feature and the
group as sensitive one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.learning.seeds import generator
from fedparity.metrics.metric import Metric, value_of

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: intervals hold 95 %."""
RESAMPLES = 200
"""Bootstrap samples of an interval."""
GROUP = "group_"
"""What the columns of groups begin with in a table of predictions."""


class Estimate(NamedTuple):
    """A number of one group of one client, and its interval; NaN where it is undefined."""

    value: float
    low: float
    high: float


def group_table(
    rows: pd.DataFrame,
    kind: str,
    metrics: Sequence[Metric],
    *,
    accuracy: bool,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a client and group, also where a client has no example of a group.

    Parameters
    ----------
    rows
        One row an example: ``client``, ``group_<kind>``, ``target``, ``output`` or ``output_0``,
        ``output_1``, ..., and ``loss``.
    kind
        The kind of group, such as ``sex``.
    metrics
        What is computed beside the loss.
    accuracy
        Whether the outputs are probabilities of classes, of which the likeliest is right or wrong.
    resamples
        Bootstrap samples of each metric's interval; 0 leaves these intervals out.
    seed
        Of the bootstrap.

    Notes
    -----
    Columns ``client``, the kind, ``n``, and of each number its value and, with ``_low`` and
    ``_high``, a 95 % interval: Wilson's for the accuracy, ``mean -+ 1.96 s / sqrt(n)`` for the
    loss, and that of bootstrap samples for metrics. Intervals are of one group at a time: of
    twenty groups with equal chances, one is expected to lie outside its own.
    """
    said = [name for name in rows if str(name).startswith("output")]
    cells = rows.groupby(["client", f"{GROUP}{kind}"], observed=False)
    found = []
    for (client, group), cell in cells:
        draws = generator(seed, f"groups {kind} {client} {group}")  # whoever else is there
        target = cell["target"].to_numpy() if "target" in cell else np.zeros(len(cell))
        output = cell[said].to_numpy(np.float64)
        output = output[:, 0] if len(said) == 1 else output
        numbers = {"loss": _mean(cell["loss"].to_numpy(np.float64))}
        if accuracy:
            numbers["accuracy"] = _share(output.argmax(1) == target if len(cell) else target > 0)
        numbers |= {
            metric.name: _sampled(metric, target, output, resamples, draws) for metric in metrics
        }
        found.append({"client": client, kind: group, "n": len(cell), **dict(_columns(numbers))})
    return pd.DataFrame(found)


def _columns(numbers: dict[str, Estimate]) -> Iterator[tuple[str, float]]:
    for name, estimate in numbers.items():
        yield name, estimate.value
        yield f"{name}_low", estimate.low
        yield f"{name}_high", estimate.high


def _mean(values: npt.NDArray[np.float64]) -> Estimate:
    if not len(values):
        return Estimate(np.nan, np.nan, np.nan)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, np.nan, np.nan)
    half = Z * float(values.std(ddof=1)) / np.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def _share(right: npt.NDArray[np.bool_]) -> Estimate:
    """Return a share with Wilson's score interval."""
    n = len(right)
    if not n:
        return Estimate(np.nan, np.nan, np.nan)
    share = float(right.mean())
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return Estimate(share, middle - half, middle + half)


def _sampled(
    metric: Metric,
    target: npt.NDArray[Any],
    output: npt.NDArray[np.float64],
    resamples: int,
    draws: np.random.Generator,
) -> Estimate:
    """Return a metric with the interval of its values on samples drawn with replacement."""
    value = value_of(metric, target, output)
    if np.isnan(value):
        return Estimate(np.nan, np.nan, np.nan)
    places = draws.integers(0, len(target), size=(resamples, len(target)))
    found = np.asarray([value_of(metric, target[one], output[one]) for one in places])
    sound = found[~np.isnan(found)]
    low, high = np.quantile(sound, [0.025, 0.975]) if len(sound) else (np.nan, np.nan)
    return Estimate(value, float(low), float(high))
