"""The experiment file: an experiment as a page of YAML that can be run again.

What a run writes as ``experiment.yaml`` is complete; a user may write as little as::

    data: {dataset: digits, partition: dirichlet(alpha=0.1), clients: 10}
    model: linear
    algorithm: eagle(lam=1)

The partition is by default the dataset's own (``natural``), and the seeds of the partition and of
label noise are by default the experiment's ``seed``.

A file is data. The model may be an import path, but it is followed only if who opens the file
allows it, by ``allow_import``: the name of a package, or several, whose code the file may name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from fedparity.core.algorithm import Algorithm
from fedparity.core.conditions import Conditions, Stop
from fedparity.core.experiment import DTYPES, Experiment
from fedparity.core.result import Result, load_module
from fedparity.core.rundir import RunDir, read_yaml
from fedparity.core.seeds import seed_for
from fedparity.core.solver import Solver
from fedparity.core.task import TASKS, Factory, Task
from fedparity.data import Federation, rebuild
from fedparity.data.recipe import Recipe
from fedparity.errors import InputError, unknown
from fedparity.imports import NOTHING, Allowed
from fedparity.models import resolve
from fedparity.recipes import algorithm, complete
from fedparity.spec import call

if TYPE_CHECKING:
    from fedparity.core.run import Watcher

OWN = ("data", "task", "model", "algorithm", "solver", "stop", "record")
KEYS = (*OWN, *(f.name for f in dataclasses.fields(Conditions)))
TABLES: dict[str, Any] = {"data": Recipe, "solver": Solver, "stop": Stop}
"""Settings that have settings inside."""


def experiment(
    settings: Mapping[str, Any],
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    data_dir: str | Path | None = None,
    allowed: Allowed = NOTHING,
) -> Experiment:
    """Return the experiment that settings describe.

    ``federation`` and ``task`` stand in for data and models that a file cannot name; ``allowed`` is
    the code that the settings may name.
    """
    check_keys(settings)
    if federation is None:
        federation = federation_of(settings, data_dir)
    if task is None:
        task = task_of(settings, federation.kind, allowed)
    conditions = {f.name for f in dataclasses.fields(Conditions)}
    stop = _table(settings, "stop")
    return Experiment(
        federation,
        task,
        algorithm=algorithm_of(settings),
        solver=solver_of(settings),
        stop=call("stop", Stop, stop) if stop else None,
        **{key: value for key, value in settings.items() if key in conditions},
    )


def check_keys(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no experiment has."""
    for key in settings:
        if key in KEYS:
            continue
        for table, kind in TABLES.items():
            if key in {f.name for f in dataclasses.fields(kind)}:
                raise InputError(
                    f"setting '{key}' belongs under '{table}': write '{table}: {{{key}: ...}}'"
                )
        raise unknown("setting", str(key), KEYS)


def solver_of(settings: Mapping[str, Any]) -> Solver:
    """Return how clients train."""
    return call("solver", Solver, _table(settings, "solver"))


def federation_of(settings: Mapping[str, Any], data_dir: str | Path | None = None) -> Federation:
    """Return the federation that the ``data`` of an experiment's settings describes."""
    return rebuild(recipe_of(settings), data_dir)


def recipe_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the federation of an experiment's settings is made, with what goes unsaid."""
    data = settings.get("data")
    if not data:
        raise InputError(
            "the experiment names no data: give a dataset (--data digits, or 'data: digits' in the "
            "file), or in Python the federation itself"
        )
    given = {"dataset": data} if isinstance(data, str) else _table(settings, "data")
    recipe: dict[str, Any] = {"partition": "natural", "seed": settings.get("seed", 0), **given}
    noise = recipe.get("noise") or ()
    if isinstance(noise, str | Mapping):
        noise = (noise,)
    recipe["noise"] = [
        {"noise": step, "seed": recipe["seed"]} if isinstance(step, str) else step for step in noise
    ]
    return recipe


def load(
    path: str | Path,
    *,
    data_dir: str | Path | None = None,
    allow_import: str | Iterable[str] = (),
) -> Experiment:
    """Return the experiment of a file, or of a run directory.

    The file may name code of the packages ``allow_import`` only.
    """
    file = Path(path)
    settings = RunDir(file).settings() if file.is_dir() else read_yaml(file)
    return experiment(settings, data_dir=data_dir, allowed=Allowed.by(allow_import))


def resume(
    directory: str | Path,
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    rounds: int | None = None,
    data_dir: str | Path | None = None,
    allow_import: str | Iterable[str] = (),
    watch: Watcher | None = None,
) -> Result:
    """Go on with the run in a directory from its last checkpoint, to ``rounds`` if given.

    The directory may name code of the packages ``allow_import`` only.
    """
    folder = RunDir(directory)
    settings = folder.settings()
    folder.require_free()  # before data are read
    if settings.get("engine") == "flower":
        raise InputError(
            f"the run in {directory} is one of a Flower federation: go on with it by 'flwr run' "
            "with resume=true in the run config"
        )
    if rounds is not None:
        settings["rounds"] = rounds
    again = experiment(
        settings,
        federation=federation,
        task=task,
        data_dir=data_dir,
        allowed=Allowed.by(allow_import),
    )
    return again.resume(directory, watch)


def load_model(
    directory: str | Path,
    *,
    factory: Factory | None = None,
    allow_import: str | Iterable[str] = (),
) -> nn.Module:
    """Return the trained module of a finished run.

    Parameters
    ----------
    directory
        Of the run.
    factory
        Makes the module, ``(shape, outputs) -> nn.Module``, instead of what the directory names.
    allow_import
        Packages whose code the directory may name.
    """
    folder = RunDir(directory)
    if not folder.model.exists():
        raise InputError(f"the run in {directory} has no model yet")
    module = _module(folder.settings(), Allowed.by(allow_import), factory)
    return load_module(module, folder)


def _module(settings: Mapping[str, Any], allowed: Allowed, factory: Factory | None) -> nn.Module:
    """Return a fresh module of a run, without its data where the run recorded their shape."""
    record = settings.get("record") or {}
    if "inputs" not in record or "task" not in settings:
        federation = federation_of(settings)
        task = task_of(settings, federation.kind, allowed, factory)
        return experiment(settings, federation=federation, task=task).setup.module
    shape, outputs = tuple(record["inputs"]), record["outputs"]
    dtype = DTYPES[settings.get("dtype", "float32")]
    task = task_of(settings, "classes", allowed, factory)
    return task.build(shape, outputs, seed_for(settings.get("seed", 0), "model"), dtype)


def algorithm_of(settings: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm, under the name the user gave it where a run recorded that."""
    found = algorithm(str(settings.get("algorithm", "fedavg")))
    record = settings.get("record")
    written = record.get("written_as") if isinstance(record, Mapping) else None
    if written is None:
        return found
    try:
        named = algorithm(str(written))
    except InputError:  # a name the user gave to a list of parts
        return found
    return named if complete(named) == complete(found) else found


def task_of(
    settings: Mapping[str, Any], kind: str, allowed: Allowed, factory: Factory | None = None
) -> Task:
    """Return the task; what is not named follows from the kind of the data.

    ``allowed`` is the code that the settings may name as the model; a ``factory`` takes its place.
    """
    if factory is None and "model" not in settings:
        raise InputError(
            "the experiment names no model: give one (--model linear, or 'model: linear' in the "
            "file)"
        )
    model: Factory | str = str(settings["model"]) if factory is None else factory
    if isinstance(model, str):
        resolve(model, allowed)  # refuses what a task, made in Python, takes
    default = "classification" if kind == "classes" else "regression"
    name = str(settings.get("task", default))
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name](model)


def _table(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = settings.get(key) or {}
    if not isinstance(found, Mapping):
        raise InputError(f"'{key}' must be a table of settings, got {found!r}")
    return {str(name): value for name, value in found.items()}
