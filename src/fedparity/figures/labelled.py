"""Runs by the label that a figure shows them under."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedparity.errors import InputError
from fedparity.metrics import Split
from fedparity.metrics.clientframe import summary_value
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir


class Labelled(NamedTuple):
    """A finished run."""

    label: str
    """Its algorithm, and the settings in which it differs from others."""
    block: str
    """What it shares with the runs it is paired with: seed and settings."""
    result: Result


def runs_of(directory: Path) -> list[Labelled]:
    """Return the finished runs of a directory: a run, or a comparison."""
    found = []
    for folder in (directory, *sorted(each for each in directory.iterdir() if each.is_dir())):
        if RunDir(folder).clients.exists():
            result = Result.load(folder)
            if not result.diverged:
                seed = str(result.settings.get("seed", 0))
                found.append(Labelled(str(result.settings["algorithm"]), seed, result))
    if not found:
        raise InputError(f"{directory} holds no finished run, comparison or study")
    return found


def by_label(runs: Iterable[Labelled]) -> dict[str, list[Result]]:
    """Return the results of each label in the order of their blocks."""
    found: dict[str, dict[str, Result]] = {}
    for run in runs:
        if run.block in found.setdefault(run.label, {}):
            raise InputError(f"'{run.label}' has two runs of seed {run.block}: keep one")
        found[run.label][run.block] = run.result
    return {label: [each[b] for b in sorted(each)] for label, each in found.items()}


def summaries(
    runs: Sequence[Labelled], metric: str, split: Split = "test"
) -> tuple[pd.DataFrame, bool]:
    """Return a summary of each run as tests take it, and whether higher values are better.

    Columns ``method``, ``seed`` (the block), ``metric`` and ``value``.
    """
    if not runs:
        raise InputError("there is no finished run: run the study first")
    rows = [
        (run.label, run.block, metric, summary_value(run.result.frame, metric, split=split))
        for run in runs
    ]
    better = runs[0].result.frame.summaries[metric].better
    if better is None:
        raise InputError(f"'{metric}' is only counted: no value is better")
    return pd.DataFrame(rows, columns=["method", "seed", "metric", "value"]), better == "higher"


def per_client(runs: Iterable[Labelled], column: str) -> pd.DataFrame:
    """Return ``label, block, client, value`` of a column of the clients' tables."""
    tables = []
    for run in runs:
        if column not in run.result.clients:
            raise InputError(f"'{run.label}' has no {column} of its clients")
        clients = run.result.clients[["client", column]].rename(columns={column: "value"})
        tables.append(clients.assign(label=run.label, block=run.block))
    if not tables:
        raise InputError("there is no finished run: run the study first")
    return pd.concat(tables, ignore_index=True)
