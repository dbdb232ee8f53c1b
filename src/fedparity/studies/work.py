"""One run of a study, wherever it happens: begun, gone on with or read, and what became of it."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedparity.data import Federation
from fedparity.errors import DamagedError, FedparityError, InputError
from fedparity.imports import NOTHING, Allowed
from fedparity.records import lock
from fedparity.records.rundir import RunDir
from fedparity.run.file import experiment

if TYPE_CHECKING:
    from fedparity.run.experiment import Experiment
    from fedparity.run.watching import Watcher

FULL = (errno.ENOSPC, errno.EDQUOT)
REMAINS = {lock.LOCK, "experiment.yaml.part", "checksums.json", "checksums.json.part"}
"""What is left of a run that was killed before it had written its settings."""


@dataclass(frozen=True)
class Order:
    """A run to be done."""

    settings: dict[str, Any]
    directory: Path
    data_dir: str | None = None
    allowed: Allowed = NOTHING

    def written(self) -> str:
        """Return the order as a line of JSON."""
        told = {
            "settings": self.settings,
            "directory": str(self.directory),
            "data_dir": self.data_dir,
            "packages": self.allowed.packages,
            "paths": self.allowed.paths,
        }
        return json.dumps(told, default=str)

    @classmethod
    def read(cls, line: str) -> Order:
        """Return the order that a line tells."""
        told = json.loads(line)
        allowed = Allowed(tuple(told["packages"]), tuple(told["paths"]))
        return cls(told["settings"], Path(told["directory"]), told["data_dir"], allowed)


class Outcome(NamedTuple):
    """What became of a run.

    ``done``, ``diverged`` (finished all the same), ``failed``, ``damaged``, ``busy`` (another
    process writes to its directory), ``stopped`` (interrupted; it goes on from its checkpoint) or
    ``full`` (no room on the disk).
    """

    state: str
    reason: str = ""


def perform(
    order: Order, watch: Watcher | None = None, federation: Federation | None = None
) -> Outcome:
    """Do what is left of a run; whatever goes wrong is told, not raised.

    ``federation`` stands in for data that settings cannot name.
    """
    try:
        lock.require_free(order.directory)
    except InputError as error:
        return Outcome("busy", str(error))
    try:
        made = experiment(
            order.settings,
            federation=federation,
            data_dir=order.data_dir,
            allowed=order.allowed,
        )
        diverged = _go(made, RunDir(order.directory), watch)
        return Outcome("diverged", diverged) if diverged else Outcome("done")
    except DamagedError as error:
        return Outcome("damaged", str(error))
    except KeyboardInterrupt:
        return Outcome("stopped")
    except Exception as error:
        told = " ".join(str(error).split())
        if is_full(error):
            return Outcome("full", told)
        kind = "" if isinstance(error, FedparityError) else f"{type(error).__name__}: "
        return Outcome("failed", f"{kind}{told}")


def _go(made: Experiment, folder: RunDir, watch: Watcher | None) -> str | None:
    """Run, or go on; return why the run diverged, or None."""
    if folder.experiment.exists():
        return made.resume(folder.path, watch).diverged
    if folder.path.is_dir() and {file.name for file in folder.path.iterdir()} <= REMAINS:
        for name in REMAINS:
            (folder.path / name).unlink(missing_ok=True)
    return made.run(folder.path, watch).diverged


def is_full(error: BaseException) -> bool:
    """Tell whether an error is that of a full disk, whoever wrote to it."""
    return any(
        (isinstance(each, OSError) and each.errno in FULL)
        or "no space left on device" in str(each).lower()
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
