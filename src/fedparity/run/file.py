"""The experiment file: an experiment as a page of YAML that can be run again.

What a run writes as ``experiment.yaml`` is complete; a user may write as little as::

    data: {dataset: digits, partition: dirichlet(alpha=0.1), clients: 10}
    model: linear
    algorithm: eagle(lam=1)

The partition is by default the dataset's own (``natural``), and the seeds of the partition and of
label noise are by default the experiment's ``seed``. Own tables are named by their path beside the
file::

    data: {table: "sites/*.csv", target: disease}

A file is data. It may name a model, parts, data, label noise, a task and a sampling by import path,
but these are followed only if who opens the file allows it, by ``allow_import``: the name of a
package, or several, whose code the file may name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedparity.arguments import checked
from fedparity.data import Federation
from fedparity.data.recipe import Recipe
from fedparity.data.source import TableRecipe
from fedparity.errors import InputError, unknown
from fedparity.imports import NOTHING, Allowed
from fedparity.learning.solver import Solver
from fedparity.learning.task import Task
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric, read_metrics
from fedparity.recipes import complete, read
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir
from fedparity.records.settings import (
    federation_of,
    settings_at,
    table_of,
    task_of,
    with_tables,
)
from fedparity.run.conditions import Conditions, Stop
from fedparity.run.experiment import ANYHOW, Experiment
from fedparity.run.sampling import read as read_sampling
from fedparity.spec import call, split_list

if TYPE_CHECKING:
    from fedparity.reports.tracking import Track
    from fedparity.run.watching import Watcher

OWN = ("data", "task", "model", "algorithm", "solver", "stop", "metrics", "record")
KEYS = (*OWN, *(f.name for f in dataclasses.fields(Conditions)))
TABLES: dict[str, tuple[Any, ...]] = {
    "data": (Recipe, TableRecipe),
    "solver": (Solver,),
    "stop": (Stop,),
}
"""Settings that have settings inside."""


def experiment(
    settings: Mapping[str, Any],
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    metrics: Sequence[Metric] | None = None,
    data_dir: str | Path | None = None,
    allowed: Allowed = NOTHING,
) -> Experiment:
    """Return the experiment that settings describe.

    ``federation``, ``task`` and ``metrics`` stand in for what a file cannot name; ``allowed`` is
    the code that the settings may name.
    """
    check_keys(settings)
    if federation is None:
        federation = federation_of(settings, data_dir, allowed)
    if task is None:
        task = task_of(settings, federation.kind, allowed)
    conditions = {f.name for f in dataclasses.fields(Conditions)}
    known = {key: value for key, value in settings.items() if key in conditions}
    if "sampling" in known:
        known["sampling"] = read_sampling(known["sampling"], allowed)
    stop = table_of(settings, "stop")
    return Experiment(
        federation,
        task,
        algorithm=algorithm_of(settings, allowed),
        solver=solver_of(settings),
        stop=call("stop", Stop, stop) if stop else None,
        metrics=metrics_of(settings, allowed) if metrics is None else metrics,
        **known,
    )


def check_keys(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no experiment has."""
    for key in settings:
        if key in KEYS:
            continue
        for table, kinds in TABLES.items():
            if any(key in {f.name for f in dataclasses.fields(kind)} for kind in kinds):
                raise InputError(
                    f"setting '{key}' belongs under '{table}': write '{table}: {{{key}: ...}}'"
                )
        raise unknown("setting", str(key), KEYS)


def metrics_of(settings: Mapping[str, Any], allowed: Allowed) -> tuple[Metric, ...]:
    """Return what is evaluated beside the means of the task's numbers."""
    asked = settings.get("metrics") or ()
    listed = split_list(asked) if isinstance(asked, str) else asked
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in listed):
        raise InputError(f"'metrics' must be a list of names, got {asked!r}")
    return read_metrics([each for each in listed if each not in ANYHOW], allowed)


def solver_of(settings: Mapping[str, Any]) -> Solver:
    """Return how clients train."""
    return call("solver", Solver, table_of(settings, "solver"))


@checked
def load(
    path: str | Path,
    *,
    data_dir: str | Path | None = None,
    allow_import: str | Iterable[str] = (),
) -> Experiment:
    """Return the experiment of a file, or of a run directory.

    The file may name code of the packages ``allow_import`` only.
    """
    settings = settings_at(path, data_dir)
    return experiment(settings, data_dir=data_dir, allowed=Allowed.by(allow_import))


@checked
def resume(
    directory: str | Path,
    *,
    federation: Federation | None = None,
    task: Task | None = None,
    metrics: Sequence[Metric] | None = None,
    rounds: int | None = None,
    data_dir: str | Path | None = None,
    allow_import: str | Iterable[str] = (),
    watch: Watcher | None = None,
    track: Track = (),
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
    if federation is None:
        settings = with_tables(settings, Path(directory), data_dir)
    if rounds is not None:
        settings["rounds"] = rounds
    again = experiment(
        settings,
        federation=federation,
        task=task,
        metrics=metrics,
        data_dir=data_dir,
        allowed=Allowed.by(allow_import),
    )
    return again.resume(directory, watch, track)


def algorithm_of(settings: Mapping[str, Any], allowed: Allowed) -> Algorithm:
    """Return the algorithm, under the name the user gave it where a run recorded that."""
    found = read(str(settings.get("algorithm", "fedavg")), allowed)
    record = settings.get("record")
    written = record.get("written_as") if isinstance(record, Mapping) else None
    if written is None:
        return found
    try:
        named = read(str(written), allowed)
    except InputError:  # a name the user gave to a list of parts
        return found
    return named if complete(named) == complete(found) else found
