"""The file of a study: an experiment file with ``algorithms``, ``grid`` and ``seeds``.

::

    data: {dataset: digits, partition: shards, clients: 10}
    model: linear
    algorithms: {FedAvg: fedavg, EAGLE: eagle(lam=2)}
    grid: {solver.lr: [0.01, 0.1]}
    seeds: 5

What is wrong with it is told with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fedparity.data.source import located
from fedparity.data.table import is_table
from fedparity.errors import InputError, unknown
from fedparity.imports import Allowed
from fedparity.records.rundir import read_yaml
from fedparity.records.settings import with_tables
from fedparity.run.file import KEYS, check_keys
from fedparity.studies.address import Addresses
from fedparity.studies.grid import check_key, checked, labelled, put, seeds_of

OWN = ("algorithms", "grid", "seeds")
"""Keys of a study's file beside those of an experiment."""
DEEPEST = 8
"""Levels of a study's file: an alias (``&a``, ``*a``) may make it endless."""
SOUND = {"data": "digits", "model": "linear"}
"""Settings with which a single other one is tried."""
Settings = dict[str, Any]
Lines = Mapping[tuple[str, ...], int]


def read(file: Path, data_dir: str | Path | None, allowed: Allowed) -> Settings:
    """Return the settings of a study's file, checked, with the paths of the tables it names."""
    told = read_yaml(file)
    lines = lines_of(file)
    check(told, lines, file, allowed)
    found = with_tables(told, file.parent, data_dir)
    grid = dict(told.get("grid") or {})
    if "data" in grid:
        grid["data"] = [located(data, file.parent, data_dir) for data in grid["data"]]
    return {**found, "grid": grid}


def check(told: Settings, lines: Lines, file: Path, allowed: Allowed) -> None:
    """Refuse what is wrong with a key or a value by itself, with its line."""
    for key, value in told.items():
        with at(file, lines, key):
            if key not in (*KEYS, *OWN):
                raise unknown("setting of a study", key, (*KEYS, *OWN))
            if key == "algorithm":
                raise InputError("a study has 'algorithms': algorithms: [fedavg, eagle(lam=1)]")
            if key == "grid" and not isinstance(value, Mapping):
                raise InputError(f"'grid' must be a table of lists, got {value!r}")
            if key == "seeds":
                seeds_of(value)
        if key not in OWN and key != "record":
            _try(key, value, lambda k, v: put(SOUND, k, v), (key,), lines, file, allowed)
    if "algorithms" not in told:
        raise InputError(f"{file} names no algorithms: algorithms: [fedavg, eagle(lam=1)]")
    with at(file, lines, "algorithms"):
        texts = labelled(told["algorithms"])
    inside = list(told["algorithms"]) if isinstance(told["algorithms"], Mapping) else None
    for place, text in enumerate(texts.values()):
        name = str(inside[place]) if inside is not None else str(place)
        with at(file, lines, "algorithms", name):
            Addresses(allowed).complete({**SOUND, "algorithm": text})
    for key, values in (told.get("grid") or {}).items():
        with at(file, lines, "grid", str(key)):
            if key == "data.table":
                raise InputError("the grid names tables: write 'data: [{table: ..., target: ...}]'")
            listed = checked({key: values})[key]
        for place, value in enumerate(listed):
            where = ("grid", str(key), *([str(place)] if isinstance(values, list) else []))
            base = {**SOUND, **({"data": told["data"]} if "data" in told else {})}
            _try(key, value, lambda k, v, b=base: put(b, k, v), where, lines, file, allowed)


def _try(
    key: str,
    value: Any,
    made: Callable[..., Settings],
    where: tuple[str, ...],
    lines: Lines,
    file: Path,
    allowed: Allowed,
) -> None:
    """Refuse a value, and if it is a table of settings the first wrong one inside."""
    settings = made(key, value)
    with at(file, lines, *where):
        check_keys(settings)
    if isinstance(value, Mapping) and key in ("data", "solver", "stop"):
        for inside in value:
            with at(file, lines, *where, str(inside)):
                check_key(f"{key}.{inside}")
    if _of_table(settings.get("data")):
        return  # it is read when it has been found
    inner = value if key in ("solver", "stop") and isinstance(value, Mapping) else {}
    for inside, one in inner.items():
        with at(file, lines, *where, str(inside)):
            Addresses(allowed).complete(put(SOUND, f"{key}.{inside}", one))
    with at(file, lines, *where):
        Addresses(allowed).complete(settings)


def _of_table(data: object) -> bool:
    return is_table(data) or (isinstance(data, Mapping) and "table" in data)


@contextmanager
def at(file: Path, lines: Lines, *where: str) -> Iterator[None]:
    """Tell the line of what is wrong."""
    try:
        yield
    except InputError as error:
        line = next(lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in lines)
        raise InputError(f"{file}, line {line}: {error}") from None


def lines_of(file: Path) -> dict[tuple[str, ...], int]:
    """Return the line of every key of a file, and of every item of a list."""
    found: dict[tuple[str, ...], int] = {(): 1}

    def walk(node: yaml.Node, where: tuple[str, ...]) -> None:
        if len(where) > DEEPEST:
            raise InputError(f"{file}, line {node.start_mark.line + 1}: nested too deep")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                place = (*where, str(key.value))
                found[place] = key.start_mark.line + 1
                walk(value, place)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                place = (*where, str(number))
                found[place] = item.start_mark.line + 1
                walk(item, place)

    node = yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)
    if node is not None:
        walk(node, ())
    return found
