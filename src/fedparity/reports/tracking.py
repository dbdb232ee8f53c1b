"""Trackers: whoever wants a table of numbers of every round, in a file or in a service.

A tracker is any function that takes a dict a round. What it is given is flat, so that every service
can take it: ``round``, ``lr``, ``asked``, ``answered`` and ``seconds``; where clients were
evaluated, ``test/loss/mean`` and ``test/loss/worst`` and the like of every split and metric, and
the numbers of each client under ``test/loss/client/NAME``; what parts tell, under ``eagle/lam``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError, unknown
from fedparity.metrics.metric import Metric, direction

Told = dict[str, float]
Values = dict[str, npt.NDArray[np.float64]]
Tracker = Callable[[Told], None]
Track = str | Tracker | tuple[str | Tracker, ...] | list[str | Tracker]


class Tracking:
    """A tracker that opens something before the first round and closes it after the last."""

    def begin(self, settings: Mapping[str, Any], directory: Path | None) -> None:
        """Take the settings of the run, and the directory that it writes to."""

    def __call__(self, told: Told) -> None:
        """Take the numbers of a round."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish what was begun."""


class CSV(Tracking):
    """A row a round in ``rounds.csv`` of the run directory, columns as they come.

    The file is written anew when a round has a number that none had before, at most a few times.
    A run that goes on keeps the rows of the rounds before.
    """

    def __init__(self, file: str | Path | None = None) -> None:
        self.file = None if file is None else Path(file)
        self.rows: list[Told] = []

    def begin(self, settings: Mapping[str, Any], directory: Path | None) -> None:
        if self.file is None:
            if directory is None:
                raise InputError("tracker 'csv' writes to the run directory: give out=, or a file")
            self.file = directory / "rounds.csv"
        self.columns: list[str] = []
        self.rows = _rows(self.file) if self.file.exists() else []

    def __call__(self, told: Told) -> None:
        assert self.file is not None
        fresh = [name for name in told if name not in self.columns]
        if not self.columns:  # what is told from here on is not told twice
            self.rows = [row for row in self.rows if row["round"] < told["round"]]
            fresh = list(dict.fromkeys(name for row in [*self.rows, told] for name in row))
        self.rows.append(told)
        self.columns += fresh
        if fresh:
            beside = self.file.with_name(f"{self.file.name}.part")
            self._write(beside, "w", self.rows)
            beside.replace(self.file)
        else:
            self._write(self.file, "a", [told])

    def _write(self, file: Path, mode: str, rows: list[Told]) -> None:
        with file.open(mode, newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, self.columns)
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)


class TensorBoard(Tracking):
    """Scalars for TensorBoard, in ``tensorboard`` of the run directory."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = folder

    def begin(self, settings: Mapping[str, Any], directory: Path | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        where = self.folder or (directory or Path("runs")) / "tensorboard"
        self.writer = SummaryWriter(str(where))
        self.writer.add_text("settings", _shown(settings))

    def __call__(self, told: Told) -> None:
        for name, value in told.items():
            self.writer.add_scalar(name, value, int(told["round"]))

    def close(self) -> None:
        self.writer.close()


class MLflow(Tracking):
    """A run of MLflow, by default in ``mlflow.db`` of the current directory."""

    def __init__(self, uri: str = "sqlite:///mlflow.db", experiment: str = "fedparity") -> None:
        self.uri, self.experiment = uri, experiment

    def begin(self, settings: Mapping[str, Any], directory: Path | None) -> None:
        try:
            import mlflow
        except ImportError:
            raise _missing("mlflow") from None
        mlflow.set_tracking_uri(self.uri)
        self.client = mlflow.MlflowClient()
        found = self.client.get_experiment_by_name(self.experiment)
        where = found.experiment_id if found else self.client.create_experiment(self.experiment)
        name = None if directory is None else directory.name
        self.run = self.client.create_run(where, run_name=name).info.run_id
        for key, value in _flat(settings).items():
            self.client.log_param(self.run, key, str(value)[:500])

    def __call__(self, told: Told) -> None:
        from mlflow.entities import Metric

        step = int(told["round"])
        metrics = [Metric(_word(name), value, 0, step) for name, value in told.items()]
        for start in range(0, len(metrics), 1000):  # as many as MLflow takes at once
            self.client.log_batch(self.run, metrics=metrics[start : start + 1000])

    def close(self) -> None:
        self.client.set_terminated(self.run)


class WandB(Tracking):
    """A run of Weights & Biases; where it goes is its own settings' affair (``WANDB_MODE``)."""

    def __init__(self, project: str = "fedparity") -> None:
        self.project = project

    def begin(self, settings: Mapping[str, Any], directory: Path | None) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        self.run = wandb.init(
            project=self.project,
            config=_flat(settings),
            dir=None if directory is None else str(directory),
            name=None if directory is None else directory.name,
        )

    def __call__(self, told: Told) -> None:
        self.run.log(told, step=int(told["round"]))

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, Callable[[], Tracking]] = {
    "csv": CSV,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def trackers(
    asked: str | Tracker | tuple[str | Tracker, ...] | list[str | Tracker],
) -> list[Tracker]:
    """Return the trackers that are asked for, by name or as functions of one's own."""
    found: list[Tracker] = []
    for each in asked if isinstance(asked, tuple | list) else [asked]:
        if isinstance(each, str):
            if each not in TRACKERS:
                raise unknown("tracker", each, TRACKERS)
            each = TRACKERS[each]()
        if not callable(each):
            raise InputError(
                f"{each!r} is no tracker: give a name ({', '.join(sorted(TRACKERS))}) or a "
                "function of a dict"
            )
        found.append(each)
    return found


def numbers_of(
    evaluated: Mapping[str, Values], names: tuple[str, ...], own: Iterable[Metric] = ()
) -> tuple[Told, Told]:
    """Return the summaries of an evaluation and the numbers of each client, by flat names.

    ``own`` are the metrics of the run, which know what is the worst.
    """
    whole: Told = {}
    each: Told = {}
    for split, values in evaluated.items():
        for metric, column in values.items():
            known = column[~np.isnan(column)]
            if not len(known):
                continue
            worst = known.max() if direction(metric, own) == "lower" else known.min()
            whole[f"{split}/{metric}/mean"] = float(known.mean())
            whole[f"{split}/{metric}/worst"] = float(worst)
            for name, value in zip(names, column.tolist(), strict=True):
                if value == value:
                    each[f"{split}/{metric}/client/{name}"] = value
    return whole, each


def _rows(file: Path) -> list[Told]:
    """Return the rounds that a file of an earlier run holds."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return [
                {name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(lines)
                if float(row["round"]) >= 0
            ]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{file} is no table of rounds: name another file") from None


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings inside settings under names such as ``solver.lr``."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{key}.")
        else:
            found[_word(f"{above}{key}")] = value
    return found


def _shown(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"    {name}: {value}" for name, value in _flat(settings).items())


def _word(name: str) -> str:
    """Return a name of letters that MLflow takes."""
    return re.sub(r"[^\w./ -]", "_", name)


def _missing(package: str) -> InputError:
    return InputError(f"{package} is not installed: pip install 'fedparity[{package}]'")
