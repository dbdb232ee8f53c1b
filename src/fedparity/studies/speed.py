"""How many rounds the algorithms of a study need to a target, and how much faster one is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fedparity.certainty import over_seeds
from fedparity.errors import unknown
from fedparity.figures import Labelled
from fedparity.figures.charts import Over, over_rounds
from fedparity.metrics import Split, rounds_to_target, speed_up
from fedparity.metrics.metric import direction

ENDS = ("mean", "low", "high")


def reaching(
    runs: Sequence[Labelled],
    target: float,
    *,
    metric: str = "accuracy",
    over: Over = "mean",
    split: Split = "test",
    reference: str | None = None,
    stay: int = 1,
) -> pd.DataFrame:
    """Return one row an algorithm; see :meth:`fedparity.Study.rounds_to_target`."""
    curves = over_rounds(runs, metric, over, split)
    better = direction(metric)
    labels = list(dict.fromkeys(run.label for run in runs))
    if reference is not None and reference not in labels:
        raise unknown("reference", reference, labels)
    found: dict[str, dict[str, int | None]] = {label: {} for label in labels}
    for (label, block), curve in curves.sort_values("metric").groupby(["method", "seed"]):
        values, rounds = curve["value"].tolist(), [int(each) for each in curve["metric"]]
        reached = rounds_to_target(values, target, rounds=rounds, better=better, stay=stay)
        found[str(label)][str(block)] = reached
    table = []
    for label, each in found.items():
        some = [value for value in each.values() if value is not None]
        row: dict[str, object] = {"algorithm": label, "seeds": len(each), "reached": len(some)}
        row |= _named("rounds", [math.nan if v is None else v for v in each.values()])
        if reference is not None:
            base = found[reference]
            both = [(base[b], v) for b, v in each.items() if b in base]
            gained = [speed_up(was, now) for was, now in both if was and now]
            row |= _named("speed_up", gained if len(gained) == len(both) else [math.nan])
        row["note"] = _note(len(some), len(each))
        table.append(row)
    return pd.DataFrame(table)


def _named(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return mean and t interval over seeds, NaN where one of them has no number."""
    told = pd.DataFrame({"value": values or [math.nan], "method": "", "metric": ""})
    row = over_seeds(told.assign(seed=range(len(told)))).iloc[0]
    return {name if end == "mean" else f"{name}_{end}": float(row[end]) for end in ENDS}


def _note(reached: int, seeds: int) -> str:
    if reached == seeds:
        return ""
    if not reached:
        return "not reached"
    return f"not reached on {seeds - reached} of {seeds} seeds"
