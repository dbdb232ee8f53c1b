"""The papers' tables as studies: what was published, and ours beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml

from fedparity.errors import unknown
from fedparity.metrics import spread
from fedparity.records.result import Result
from fedparity.studies.study import Study

FOLDER = "papers"
Row = npt.NDArray[np.float64]


OVER_CLIENTS: dict[str, Callable[[Row], float]] = {
    "mean_accuracy": lambda row: float(row.mean()),
    "accuracy_std": lambda row: float(row.std()),
    "accuracy_variance": lambda row: float(row.var()),
    "worst5_accuracy": lambda row: spread.worst_share(row, 0.05),
}
"""Summaries that a table may average over the last evaluations."""


@dataclass(frozen=True)
class Packaged:
    """A table of a paper.

    Attributes
    ----------
    name, title, protocol
        What it is called, and how it is run.
    study
        The content of the study's file.
    columns
        Summaries of a run by the name of the column.
    published
        Numbers: ``what`` they are, their ``column``, and ``values`` by algorithm.
    claims
        Orders that the paper states without these numbers: ``column``, ``lower`` and ``higher``.
    last
        Evaluations at the end that are averaged; 0: the final model alone.
    """

    name: str
    title: str
    protocol: str
    study: dict[str, Any]
    columns: dict[str, str]
    quick: dict[str, Any]
    published: tuple[dict[str, Any], ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    last: int = 0

    def planned(
        self, out: str | Path, quick: bool = False, data_dir: str | Path | None = None
    ) -> Study:
        """Return the study, at the paper's scale or so that it takes minutes."""
        told = {**self.study, **(self.quick if quick else {})}
        own = {key: told.pop(key) for key in ("grid", "seeds") if key in told}
        return Study(told, told.pop("algorithms"), out, **own, data_dir=data_dir)

    def numbers(self, study: Study) -> pd.DataFrame:
        """Return the table's columns of every finished run, by ``algorithm`` and ``seed``."""
        rows = [
            {"algorithm": run.cell.label, "seed": run.cell.seed, **self._of(result)}
            for run, result in study.results()
            if not result.diverged
        ]
        return pd.DataFrame(rows, columns=["algorithm", "seed", *self.columns])

    def _of(self, result: Result) -> dict[str, float]:
        if not self.last:
            summary = result.summary()
            return {column: float(summary[name]) for column, name in self.columns.items()}
        rows = result.history.query(
            "split == 'test' and metric == 'accuracy' and model == 'global'"
        )
        rounds = 100 * rows.pivot(index="round", columns="client", values="value").to_numpy()
        return {
            column: float(np.mean([OVER_CLIENTS[name](row) for row in rounds[-self.last :]]))
            for column, name in self.columns.items()
        }

    def beside(self, study: Study) -> pd.DataFrame:
        """Return a row an algorithm: ours over the seeds that are done, and what was published."""
        numbers = self.numbers(study)
        printed = {(e["column"], a): v for e in self.published for a, v in e["values"].items()}
        rows = []
        for label in study.algorithms:
            own = numbers[numbers["algorithm"] == label]
            row: dict[str, Any] = {"algorithm": label, "seeds": len(own), "of": len(study.seeds)}
            for column in self.columns:
                row[column] = own[column].mean()
                row[f"{column}, std over seeds"] = own[column].std()
                row[f"{column}, published"] = printed.get((column, label), np.nan)
            rows.append(row)
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def orders(self) -> Iterator[tuple[str, str, str]]:
        """Yield column, lower and higher algorithm of every order that was published."""
        for entry in self.published:
            by_value = sorted(entry["values"].items(), key=lambda each: each[1])
            for (low, a), (high, b) in itertools.combinations(by_value, 2):
                if a < b:
                    yield entry["column"], low, high
        yield from ((each["column"], each["lower"], each["higher"]) for each in self.claims)

    def holding(self, study: Study) -> pd.DataFrame:
        """Return where the published orders hold: on how many seeds, and in the mean."""
        numbers = self.numbers(study)
        rows = []
        for column, low, high in self.orders():
            wide = numbers.pivot(index="seed", columns="algorithm", values=column)
            if low not in wide or high not in wide:
                continue
            both = wide[[low, high]].dropna()
            if len(both):
                rows.append(
                    {
                        "column": column,
                        "lower": low,
                        "higher": high,
                        "seeds": len(both),
                        "holds on": int((both[low] < both[high]).sum()),
                        "in the mean": bool(both[low].mean() < both[high].mean()),
                    }
                )
        names = ["column", "lower", "higher", "seeds", "holds on", "in the mean"]
        return pd.DataFrame(rows, columns=names)


def listed() -> dict[str, str]:
    """Return the packaged studies: their names and titles."""
    return {name: packaged(name).title for name in _names()}


def packaged(name: str) -> Packaged:
    """Return a packaged study."""
    if name not in _names():
        raise unknown("packaged study", name, _names())
    file = resources.files("fedparity.studies") / FOLDER / f"{name}.yaml"
    told: Mapping[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    lists = {key: tuple(told.get(key, ())) for key in ("published", "claims")}
    return Packaged(name=name, **{**told, **lists})


def _names() -> list[str]:
    folder = resources.files("fedparity.studies") / FOLDER
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")
