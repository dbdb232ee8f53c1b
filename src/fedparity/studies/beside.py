"""Our numbers beside the published ones, and where what was published holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedparity.certainty import over_seeds
from fedparity.certainty.predictions import mcnemar_of
from fedparity.errors import InputError
from fedparity.records.result import Result
from fedparity.studies.gradients import layer_norms
from fedparity.studies.packaged import Packaged
from fedparity.studies.runs import Run
from fedparity.studies.study import Study
from fedparity.studies.table import rounded

BLOCK = "seed"
"""What is repeated: a seed, and a value of every key of the grid that repeats."""
SAME = 1e-9
"""Relative width of an interval that is nothing but rounding."""
Place = tuple[str, tuple[str, ...], str]
"""An algorithm, what was chosen of the grid, and the seed."""


class Beside:
    """The numbers of a packaged table's study, as far as it has been run.

    Parameters
    ----------
    table
        What was published, and which numbers are wanted.
    study
        The runs, as ``table.planned`` plans them.
    """

    def __init__(self, table: Packaged, study: Study) -> None:
        self.table, self.study = table, study

    @cached_property
    def every(self) -> pd.DataFrame:
        """Every finished run that did not diverge: a row a run.

        Columns ``row``, ``chosen`` (the value of the key that is, or empty), ``seed``, and those
        of the table.
        """
        found = self.study.results()
        runs = [(run, result) for run, result in found if not result.diverged]
        others = {self._place(run): result for run, result in runs}
        rows = [
            {
                "row": run.cell.label + self._where(run),
                "chosen": self._chosen(run),
                BLOCK: self._block(run),
                **{name: self._number(name, run, result, others) for name in self.table.columns},
            }
            for run, result in runs
        ]
        return pd.DataFrame(rows, columns=["row", "chosen", BLOCK, *self.table.columns])

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """The runs that rows are made of: those at a row's best value, if one is chosen."""
        if self.table.choose is None:
            return self.every
        by = self.table.choose["by"]
        sign = -1 if self.table.columns[by].better == "lower" else 1
        kept = []
        for _, runs in self.every.groupby("row", sort=False):
            each = runs.groupby("chosen", sort=False)[by].agg(["mean", "count"])
            whole = each[each["count"] == each["count"].max()]
            kept.append(runs[runs["chosen"] == (sign * whole["mean"]).idxmax()])
        return pd.concat(kept) if kept else self.every

    @property
    def printed(self) -> dict[tuple[str, str], float]:
        """The published numbers, by column and row."""
        entries = self.table.published
        return {(e["column"], row): v for e in entries for row, v in e["values"].items()}

    def rows(self) -> list[str]:
        """Return the rows of the table, in its order."""
        places = self.table.places(self.study.grid)
        return [label + place for place in places for label in self.study.algorithms]

    @property
    def repetitions(self) -> int:
        """How many runs a row is to have."""
        each = [len(self.study.grid[key]) for key in self.table.repeats if key in self.study.grid]
        return int(np.prod([len(self.study.seeds), *each]))

    def values(self) -> pd.DataFrame:
        """Return a row a cell: the mean over seeds, its interval, and what was published.

        Columns ``row``, ``column``, ``seeds``, ``mean``, ``std``, ``low`` and ``high`` (the 95 % t
        interval) and ``published``.
        """
        long = self.numbers.melt(["row", BLOCK], list(self.table.columns), "metric", "value")
        if long.empty:
            raise InputError("the study has no finished run: run it first")
        long = long.dropna(subset="value")
        found = over_seeds(long.rename(columns={"row": "method"}))
        found = found.rename(columns={"method": "row", "metric": "column"})
        found["published"] = [
            self.printed.get((column, row), np.nan)
            for row, column in zip(found["row"], found["column"], strict=True)
        ]
        return found

    def cells(self) -> pd.DataFrame:
        """Return the table as texts: means with their intervals, and what was published."""
        values = self.values().to_dict("records")
        known = {(cell["row"], cell["column"]): cell for cell in values}
        done = self.numbers.groupby("row").size()
        best = self.numbers.groupby("row")["chosen"].first()
        lines = []
        for row in self.rows():
            line = {"": row, "seeds": f"{done.get(row, 0)} of {self.repetitions}"}
            if self.table.choose is not None:
                line[self.table.choose["key"]] = str(best.get(row, ""))
            for column in self.table.columns:
                cell = known.get((row, column))
                line[column] = "--" if cell is None else _interval(cell, int(done[row]))
                printed = self.printed.get((column, row))
                line[f"{column}, published"] = "" if printed is None else f"{printed:g}"
            lines.append(line)
        frame = pd.DataFrame(lines)
        empty = [f"{column}, published" for column in self.table.columns]
        return frame.drop(columns=[name for name in empty if not any(frame[name])])

    def holding(self) -> pd.DataFrame:
        """Return every published order of two rows that were run, and where it holds.

        Columns ``what``, ``column``, ``lower``, ``higher``, ``holds on`` (of the seeds that both
        have), ``published`` and ``ours``: by how much, or how many times, one is higher.
        """
        names = ["what", "column", "lower", "higher", "holds on", "published", "ours"]
        return pd.DataFrame(self._held(), columns=names)

    def _held(self) -> Iterator[dict[str, Any]]:
        for order in self.table.orders(self.study):
            column, low, high = order["column"], order["lower"], order["higher"]
            wide = self.numbers.pivot(index=BLOCK, columns="row", values=column)
            if low not in wide or high not in wide:
                continue
            both = wide[[low, high]].dropna()
            if not len(both):
                continue
            apart = both[high] - both[low]
            told = {"what": order["what"], "column": column, "lower": low, "higher": high}
            told["holds on"] = f"{int((apart.to_numpy() > 0).sum())} of {len(both)}"
            if "times" in order:
                ratio = float(both[high].to_numpy().mean() / both[low].to_numpy().mean())
                told |= {"published": f"{order['times']:g} times", "ours": f"{ratio:.2f} times"}
            else:
                over = over_seeds(
                    pd.DataFrame({"method": "", "seed": both.index, "metric": "", "value": apart})
                ).to_dict("records")[0]
                told["published"] = f"{order['by']:+g}" if "by" in order else ""
                told["ours"] = _interval(over, len(both), sign="+")
            yield told

    def left(self) -> tuple[int, list[str]]:
        """Return how many runs are yet to be done, and a line for each that came to no number."""
        waiting, found = 0, []
        for run in self.study.runs:
            state, reason = self.study.state(run)
            if state in ("waiting", "begun"):
                waiting += 1
            elif state != "done":
                found.append(f"{run.name}: {state}{f': {reason}' if reason else ''}")
        return waiting, found

    def _number(self, name: str, run: Run, result: Result, others: dict[Place, Result]) -> float:
        column = self.table.columns[name]
        if column.of == "gradient_norm":
            settings, where = run.cell.settings, self.study.data_dir
            norms = layer_norms(result, settings, where, self.study.allowed)[column.over]
            return float(norms.mean() if column.layer is None else norms.iloc[column.layer])
        if column.of == "mcnemar":
            _, chosen, block = self._place(run)
            other = others.get((str(column.against), chosen, block))
            if other is None or other is result:
                return float("nan")
            return mcnemar_of(other.predictions, result.predictions, split=column.split).pvalue
        return column.value(result)

    def _where(self, run: Run) -> str:
        keys = self.table.keys(self.study.grid)
        return "".join(f", {self.table.called(key, run.cell.chosen[key])}" for key in keys)

    def _chosen(self, run: Run) -> str:
        return "" if self.table.choose is None else str(run.cell.chosen[self.table.choose["key"]])

    def _block(self, run: Run) -> str:
        repeated = [run.cell.chosen[k] for k in self.table.repeats if k in run.cell.chosen]
        return ", ".join(map(str, [run.cell.seed, *repeated]))

    def _place(self, run: Run) -> Place:
        chosen = {k: v for k, v in run.cell.chosen.items() if k not in self.table.repeats}
        return run.cell.label, tuple(map(str, chosen.values())), self._block(run)


def _interval(cell: Mapping[Any, Any], runs: int, sign: str = "") -> str:
    """Return ``80.11 (79.24 to 80.98)``; how many runs have a number, where some have none."""
    mean, low, high = (float(cell[name]) for name in ("mean", "low", "high"))
    short = f", {int(cell['seeds'])} of {runs}" if cell["seeds"] < runs else ""
    plus = sign if mean > 0 else ""
    if not np.isfinite(low) or high - low <= SAME * max(1.0, abs(mean)):
        return f"{plus}{mean:.4g}{short}"
    text, spread = rounded(mean, float(cell["std"]))
    places = len(spread.partition(".")[2])
    return f"{plus}{text} ({low:.{places}f} to {high:.{places}f}){short}"
