"""The front of several runs, with intervals over seeds, and which one is recommended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedparity.arguments import checked, named
from fedparity.errors import InputError, unknown
from fedparity.fronts.plane import hypervolume, knee, non_dominated
from fedparity.joining.verdicts import interval
from fedparity.metrics import Split
from fedparity.metrics.clientframe import summary_value
from fedparity.metrics.gaps import gap_variance, max_gap, min_gap, verdict
from fedparity.records.result import Result

Runs = Mapping[str, Sequence[Result]]


@named
@dataclass(frozen=True)
class Frontier:
    """Two summaries of several settings, each over the same seeds.

    Attributes
    ----------
    table
        One row a setting: the means of both summaries with the ends of their intervals
        (``NAME_low``, ``NAME_high``), ``front``: whether no other mean is better in both, and
        ``levelling_down``: whether its gaps are closer than the reference's only because the best
        client is worse off, or None where that cannot be judged.
    across
        The two summaries.
    hypervolume
        The area that the front covers towards ``corner``, the worst of each summary.
    recommended
        The setting recommended; None where every one of the front levels down, or none is between
        the ends of the front.
    reason
        Why, in words.
    """

    table: pd.DataFrame
    across: tuple[str, str]
    hypervolume: float
    corner: tuple[float, float]
    recommended: str | None
    reason: str


@checked
def frontier(
    runs: Runs,
    *,
    across: tuple[str, str] = ("mean_accuracy", "gap_variance"),
    reference: str | None = None,
    split: Split = "validation",
    confidence: float = 0.95,
) -> Frontier:
    """Return which settings no other beats in both of two summaries, and which one to take.

    Parameters
    ----------
    runs
        Of each setting, such as ``"eagle(lam=1)"``, its results on the same seeds, in their order.
    across
        The two summaries; which direction is better, they say themselves.
    reference
        The setting against which levelling down is judged, by default the one whose runs are of
        ``fedavg``. Without one, or where its runs cannot be compared, ``reason`` says so.
    split
        A setting is chosen on validation; test is for the report of what was chosen.
    confidence
        Of the intervals over seeds (Student).

    Notes
    -----
    Recommended is the knee of the front, without those that level down: scaled to the front's ends,
    the point furthest from the line between them, where giving up more of one gains least of the
    other.
    """
    _check(runs, across)
    if reference is None:
        reference = _plain(runs)
    if reference is not None and reference not in runs:
        raise unknown("reference", reference, runs)
    frame = next(iter(runs.values()))[0].frame
    if len(set(across)) < 2:
        raise InputError("a frontier is across two different summaries")
    numbers = np.array(
        [
            [[summary_value(r.frame, name, split=split) for name in across] for r in results]
            for results in runs.values()
        ]
    )
    if not np.isfinite(numbers).all():
        where = list(runs)[int(np.argwhere(~np.isfinite(numbers))[0, 0])]
        raise InputError(f"'{where}' has no finite {' and '.join(across)}: leave it out")
    better = [frame.summaries[name].better for name in across]
    if None in better:
        raise InputError(f"'{across[better.index(None)]}' is only counted: no value is better")
    signs = np.array([1.0 if each == "lower" else -1.0 for each in better])
    mean, low, high = interval(numbers.swapaxes(0, 1), confidence)
    points = signs * mean
    front, (levels, unjudged) = non_dominated(points), _levelling(runs, reference, split)
    table = pd.DataFrame({"setting": list(runs)})
    for place, name in enumerate(across):
        table[name], table[f"{name}_low"] = mean[:, place], low[:, place]
        table[f"{name}_high"] = high[:, place]
    table["front"], table["levelling_down"] = front, pd.Series(levels, dtype=object)
    corner = points.max(axis=0)
    chosen, reason = _choice(table, points, front, across)
    area = hypervolume(points[front], corner)
    if unjudged is not None:
        reason = f"{reason} Levelling down was not judged: {unjudged}."
    return Frontier(table, across, area, tuple((signs * corner).tolist()), chosen, reason)


def _check(runs: Runs, across: tuple[str, str]) -> None:
    if not isinstance(runs, Mapping):
        what = type(runs).__name__
        raise InputError(f"runs is a {what}: give lists of results by setting, {{'fedavg': [...]}}")
    if len(runs) < 2:
        raise InputError("a frontier needs at least two settings")
    lengths = {len(results) for results in runs.values()}
    if len(lengths) > 1 or 0 in lengths:
        raise InputError("every setting needs results on the same seeds")
    seeds = {tuple(r.settings.get("seed") for r in results) for results in runs.values()}
    if len(seeds) > 1:
        raise InputError("the results of every setting must be of the same seeds, in their order")
    for label, results in runs.items():
        if any(result.diverged for result in results):
            raise InputError(f"'{label}' diverged: leave it out")


def _plain(runs: Runs) -> str | None:
    """Return the setting whose runs are of plain FedAvg."""
    if "fedavg" in runs:
        return "fedavg"
    names = {
        str(r.settings.get("algorithm")).lower(): label for label, rs in runs.items() for r in rs
    }
    return names.get("fedavg", names.get("fedavg()"))


def _levelling(
    runs: Runs, reference: str | None, split: Split
) -> tuple[list[bool] | list[None], str | None]:
    """Return which settings level down by mean changes over the seeds; or why it is not judged."""
    column = f"{split}_gap"
    if reference is None:
        return [None] * len(runs), "no setting is fedavg, so name a reference"
    if not all(column in r.clients for results in runs.values() for r in results):
        return [None] * len(runs), "some runs have no gaps"
    for label, results in runs.items():
        for result, plain in zip(results, runs[reference], strict=True):
            if (why := result.incomparable(plain)) is not None:
                return [None] * len(runs), f"'{label}': {why}"

    def numbers(result: Result) -> list[float]:
        gaps = result.clients[column].dropna().to_numpy()
        return [gap_variance(gaps), max_gap(gaps), min_gap(gaps)]

    of = {label: np.mean([numbers(r) for r in results], axis=0) for label, results in runs.items()}
    return [verdict(*(now - of[reference])) == "levelling_down" for now in of.values()], None


def _choice(
    table: pd.DataFrame, points: np.ndarray, front: np.ndarray, across: tuple[str, str]
) -> tuple[str | None, str]:
    down = table["levelling_down"].eq(True).to_numpy()
    fit = np.flatnonzero(front & ~down)
    if not len(fit):
        return None, "Every setting of the front levels down: take the reference, or a softer one."
    ends = [table.iloc[int(fit[np.argmin(points[fit, axis])])] for axis in (0, 1)]
    best = "; ".join(
        f"the best {name} of the front is {end[name]:.4g} ('{end['setting']}')"
        for name, end in zip(across, ends, strict=True)
    )
    left = int((front & down).sum())
    without = f", {left} of which level down and are left out" if left else ""
    between = knee(points[fit])
    if between is None:
        return None, f"No setting is a compromise, so choose by what matters more{without}: {best}."
    row = table.iloc[int(fit[between])]
    told = ", ".join(f"{name} {row[name]:.4g}" for name in across)
    why = f"it gives up least of both: {best}"
    if len(fit) == 1:
        why = "no other setting is as good in both"
    known = all(np.isfinite(row[f"{name}_low"]) for name in across)
    unsure = "" if known else " No intervals: one seed, or all seeds alike."
    name = row["setting"]
    count = int(front.sum())
    return str(
        name
    ), f"Take '{name}' ({told}), one of {count} on the front{without}: {why}.{unsure}"
