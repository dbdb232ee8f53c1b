"""The papers' tables as files: how each is run, what was published, what is claimed.

::

    title: "A paper, Table 1: what it is"
    protocol: How it is run, and what of the paper could be established.
    study: {data: ..., model: ..., algorithms: {FedAvg: fedavg}, grid: {...}, seeds: 5}
    quick: {rounds: 20}                     # in place of the study's, so that it takes minutes
    columns: {mean: mean_accuracy}          # see fedparity.studies.columns
    published: [{what: "Table 1", column: mean, values: {FedAvg: 86.49}}]
    claims: [{what: "Table 1", column: mean, lower: FedAvg, higher: Ours, by: 0.18}]
    missing: Why further printed numbers are not here.
    choose: {key: solver.lr, by: validation}  # a row's value of a key of the grid is its best
    names: {model: [small, large]}          # what the values of a key of the grid are called
    repeats: [data.dataset]                 # keys of the grid whose values count like seeds

A row of a table is an algorithm's label, with what was chosen of the grid: ``FedAvg, small``. A
claim that names labels alone is made at every place of the grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fedparity.errors import InputError, unknown
from fedparity.imports import NOTHING
from fedparity.records.rundir import read_yaml
from fedparity.studies.columns import Column, column
from fedparity.studies.file import Lines, at, check, lines_of
from fedparity.studies.grid import labelled
from fedparity.studies.study import Study

FOLDER = "papers"
ENTRIES = {
    "published": (("what", "column", "values"), ()),
    "claims": (("what", "column", "lower", "higher"), ("by", "times")),
    "choose": (("key", "by"), ()),
}
"""Keys of what a table lists: those that must be there, and those that may."""
RESERVED = ("row", "chosen", "seed", "seeds", "metric", "value")
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Packaged:
    """A table of a paper, or one of our own; the module's text says what its keys are."""

    name: str
    title: str
    protocol: str
    study: dict[str, Any]
    columns: dict[str, Column]
    quick: dict[str, Any] = field(default_factory=dict)
    published: tuple[Entry, ...] = ()
    claims: tuple[Entry, ...] = ()
    missing: str = ""
    choose: Entry | None = None
    names: dict[str, list[str]] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()

    def settings(self, quick: bool = False) -> dict[str, Any]:
        """Return the content of the study's file, at the paper's scale or in minutes."""
        return {**self.study, **(self.quick if quick else {})}

    def planned(
        self, out: str | Path, quick: bool = False, data_dir: str | Path | None = None
    ) -> Study:
        """Return the study, at the paper's scale or so that it takes minutes."""
        told = self.settings(quick)
        own = {key: told.pop(key) for key in ("grid", "seeds") if key in told}
        algorithms, name = told.pop("algorithms"), self.name + ("-quick" if quick else "")
        return Study(told, algorithms, out, **own, data_dir=data_dir, name=name)

    def keys(self, grid: Mapping[str, Any]) -> list[str]:
        """Return the keys of a grid that name rows."""
        chosen = self.choose["key"] if self.choose else None
        return [key for key in grid if key != chosen and key not in self.repeats]

    def places(self, grid: Mapping[str, Any]) -> list[str]:
        """Return what stands behind the label of each row of a grid: ``, small``."""
        each = [[self.called(key, value) for value in grid[key]] for key in self.keys(grid)]
        return ["".join(f", {text}" for text in texts) for texts in itertools.product(*each)]

    def called(self, key: str, value: Any) -> str:
        """Return what a value of a key of the grid is called."""
        values = list(self.study["grid"][key]) if key in self.names else []
        if value in values:
            return self.names[key][values.index(value)]
        return f"{key.rpartition('.')[2]} {value}"

    def orders(self, study: Study) -> Iterator[Entry]:
        """Yield every order of two rows that was published: a claim each."""
        for entry in self.published:
            by_value = sorted(entry["values"].items(), key=lambda each: each[1])
            for (low, a), (high, b) in itertools.combinations(by_value, 2):
                if a < b:
                    sides = {"lower": low, "higher": high, "by": round(b - a, 6)}
                    yield {"what": entry["what"], "column": entry["column"], **sides}
        for claim in self.claims:
            low, high = claim["lower"], claim["higher"]
            if low not in study.algorithms or high not in study.algorithms:
                yield claim
                continue
            for place in self.places(study.grid):
                yield {**claim, "lower": low + place, "higher": high + place}


def listed() -> dict[str, str]:
    """Return the packaged studies: their names and titles."""
    folder = resources.files("fedparity.studies") / FOLDER
    texts = {name: (folder / f"{name}.yaml").read_text(encoding="utf-8") for name in _names()}
    return {name: str(yaml.safe_load(text)["title"]) for name, text in texts.items()}


def packaged(name: str) -> Packaged:
    """Return a packaged study."""
    if name not in _names():
        raise unknown("packaged study", name, _names())
    with resources.as_file(resources.files("fedparity.studies") / FOLDER / f"{name}.yaml") as file:
        return read(file)


def _names() -> list[str]:
    folder = resources.files("fedparity.studies") / FOLDER
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")


def read(file: Path) -> Packaged:
    """Return the table of a file; what is wrong with it is told with its line."""
    told, lines = read_yaml(file), lines_of(file)
    known = [each.name for each in fields(Packaged) if each.name != "name"]
    for key in told:
        with at(file, lines, key):
            if key not in known:
                raise unknown("setting of a packaged study", key, known)
    for key in ("title", "protocol", "study", "columns"):
        if not told.get(key):
            raise InputError(f"{file} has no '{key}'")
    study, quick = told["study"], told.get("quick") or {}
    inside = _inside(lines, "study")
    check(study, inside, file, NOTHING)
    check({**study, **quick}, {**inside, **_inside(lines, "quick")}, file, NOTHING)
    columns = {}
    for name, what in told["columns"].items():
        with at(file, lines, "columns", str(name)):
            columns[str(name)] = column(what)
    lists = {key: tuple(told.get(key) or ()) for key in ("published", "claims", "repeats")}
    made = Packaged(file.stem, **{**told, **lists, "columns": columns, "quick": quick})
    _check(made, file, lines)
    return made


def _inside(lines: Lines, key: str) -> Lines:
    """Return the lines of what stands under a key."""
    return {where[1:]: line for where, line in lines.items() if where[:1] == (key,)}


def _check(table: Packaged, file: Path, lines: Lines) -> None:
    """Refuse names that are of no column, row or key of the grid."""
    grid = table.study.get("grid") or {}
    labels = list(labelled(table.study["algorithms"]))
    for key in grid:
        with at(file, lines, "names", key):
            if key in table.names and len(table.names[key]) != len(grid[key]):
                raise InputError(f"'{key}' has {len(grid[key])} values and other numbers of names")
    for place, key in [("names", k) for k in table.names] + [("repeats", k) for k in table.repeats]:
        with at(file, lines, place, key):
            if key not in grid:
                raise unknown("key of the grid", key, grid)
    if table.choose is not None:
        with at(file, lines, "choose"):
            _check_entry("choose", table.choose)
            _among("key of the grid", table.choose["key"], grid)
            _among("column", table.choose["by"], table.columns)
            if table.columns[table.choose["by"]].better is None:
                raise InputError(f"neither direction of '{table.choose['by']}' is better")
    rows = [label + place for label in labels for place in table.places(grid)]
    for kind in ("published", "claims"):
        for number, entry in enumerate(getattr(table, kind)):
            with at(file, lines, kind, str(number)):
                _check_entry(kind, entry)
                _among("column", entry["column"], table.columns)
                both = [entry[side] for side in ("lower", "higher") if side in entry]
                for row in entry.get("values", both):
                    _among("row", row, {*rows, *labels} if kind == "claims" else rows)
    for name, each in table.columns.items():
        with at(file, lines, "columns", name):
            if name in RESERVED:
                raise InputError(f"'{name}' is no name for a column: it has a meaning of its own")
            if each.against is not None:
                _among("algorithm", each.against, labels)
    if not table.published and not table.missing and not table.claims:
        raise InputError(f"{file} has no published numbers: say under 'missing' why")


def _check_entry(kind: str, entry: Entry) -> None:
    """Refuse an entry that lacks a key, or has one too many."""
    must, may = ENTRIES[kind]
    for key in entry:
        if key not in (*must, *may):
            raise unknown(f"setting of '{kind}'", key, (*must, *may))
    for key in must:
        if key not in entry:
            raise InputError(f"an entry of '{kind}' has no '{key}'")


def _among(kind: str, name: str, known: Any) -> None:
    if name not in known:
        raise unknown(kind, name, known)
