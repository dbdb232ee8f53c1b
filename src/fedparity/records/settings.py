"""What the settings of an experiment name: its data and its task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedparity.data import Federation, SiteTable, rebuild, table
from fedparity.data.hub import rewritten
from fedparity.data.prepare import Preparation
from fedparity.data.recipe import table_of as table_in
from fedparity.data.source import TableRecipe, located
from fedparity.data.table import is_table
from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed
from fedparity.learning import tasks
from fedparity.learning.models import resolve
from fedparity.learning.task import Task
from fedparity.records.rundir import RunDir, read_yaml

NO_TABLES = (".xls", ".xlsx", ".ods", ".sav", ".dta", ".txt", ".json", ".feather", ".pkl")
"""Endings of files in which people keep tables, and which are not read."""


def settings_at(path: str | Path, data_dir: str | Path | None = None) -> dict[str, Any]:
    """Return the settings of an experiment file or of a run directory, its tables located."""
    file = Path(path)
    settings = RunDir(file).settings() if file.is_dir() else read_yaml(file)
    return with_tables(settings, file if file.is_dir() else file.parent, data_dir)


def with_tables(
    settings: dict[str, Any], folder: Path, data_dir: str | Path | None = None
) -> dict[str, Any]:
    """Return the settings of a file in a folder with the paths of the tables that it may name."""
    if "data" not in settings:
        return settings
    return {**settings, "data": located(settings["data"], folder, data_dir)}


def federation_of(
    settings: Mapping[str, Any], data_dir: str | Path | None = None, allowed: Allowed = NOTHING
) -> Federation:
    """Return the federation that the ``data`` of an experiment's settings describes.

    ``allowed`` is the code that the settings may name.
    """
    return rebuild(recipe_of(settings), data_dir, allowed)


def prepared_again(
    settings: Mapping[str, Any], made: Preparation, folder: Path, allowed: Allowed
) -> Preparation:
    """Return the preparation of a run by a transformer of the user's own, fitted again.

    It is fitted on the very table of the run, whose sha256 its settings tell.
    """
    again = federation_of(with_tables(dict(settings), folder), allowed=allowed).preparation
    assert made.own is not None
    if again is None or again.own is None:
        raise InputError(f"{folder} was prepared by '{made.own.code}', its settings say otherwise")
    made.own.require_same(again.own)
    return again


def site_of(
    experiment: str | Path,
    client: str,
    file: str | Path | None = None,
    allowed: Allowed = NOTHING,
) -> Federation | SiteTable:
    """Return what the site of a client has of the data of an experiment.

    Parameters
    ----------
    experiment
        The experiment file.
    client
        The client.
    file
        The site's own table, with the columns that the experiment names; None: the client's share
        is cut out of the data that the experiment names, as a trial.
    allowed
        The code that the experiment may name.
    """
    settings = settings_at(experiment) if file is None else read_yaml(Path(experiment))
    recipe = recipe_of(settings)
    if "table" not in recipe:
        if file is not None:
            raise InputError(f"the experiment names no table, so {file} is not read by itself")
        return federation_of(settings, allowed=allowed).only(client)
    told = TableRecipe.read(recipe)
    if file is not None and told.noise:
        raise InputError(
            f"{experiment} puts label noise on the data, which is drawn over all clients together "
            f"and not where a site has its own file ({file}): take 'noise' out of data"
        )
    if file is not None:
        return SiteTable.of(told, table.read(Path(file)), client)
    if told.noise or told.prepare not in ("federated", "client"):
        return federation_of(settings, allowed=allowed).only(client)
    return SiteTable.of(told, table_in(told).frame, client)


def recipe_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the federation of an experiment's settings is made, with what goes unsaid."""
    data = settings.get("data")
    if not data:
        raise InputError(
            "the experiment names no data: give a dataset (--data digits, or 'data: digits' in the "
            "file), or in Python the federation itself"
        )
    if isinstance(data, str):
        data = {"table" if is_table(data) else "dataset": data}
    given = rewritten(table_of({"data": data}, "data"))
    named = str(given.get("dataset", ""))
    if named.lower().endswith(NO_TABLES) or ("/" in named and "(" not in named):
        raise InputError(f"'{named}' is no table that can be read: save it as CSV or parquet")
    usual = {} if "table" in given else {"partition": "natural"}
    recipe: dict[str, Any] = {**usual, "seed": settings.get("seed", 0), **given}
    noise = recipe.get("noise") or ()
    if isinstance(noise, str | Mapping):
        noise = (noise,)
    recipe["noise"] = [
        {"noise": step, "seed": recipe["seed"]} if isinstance(step, str) else step for step in noise
    ]
    return recipe


def task_of(settings: Mapping[str, Any], kind: str, allowed: Allowed) -> Task:
    """Return the task; what is not named follows from the kind of the data.

    ``allowed`` is the code that the settings may name.
    """
    if "model" not in settings:
        raise InputError(
            "the experiment names no model: give one (--model linear, or 'model: linear' in the "
            "file)"
        )
    model = str(settings["model"])
    resolve(model, allowed)  # refuses what a task, made in Python, takes
    named = settings["task"] if "task" in settings else tasks.usual(kind)
    return tasks.read(str(named), model, allowed)


def table_of(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a setting that has settings inside."""
    found = settings.get(key) or {}
    if not isinstance(found, Mapping):
        raise InputError(f"'{key}' must be a table of settings, got {found!r}")
    return {str(name): value for name, value in found.items()}
