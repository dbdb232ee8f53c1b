"""One run of a study: its place in the grid, where it is kept, and what became of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedparity.errors import DamagedError, InputError
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir
from fedparity.studies.grid import Cell
from fedparity.studies.work import Outcome


def note_of(directory: Path) -> Path:
    """Return the file beside a run's directory that tells why the run failed."""
    return directory.with_name(f"{directory.name}.json")


@dataclass(frozen=True)
class Run:
    """One run of a study: where it stands in the grid, and where it is kept."""

    cell: Cell
    address: str
    alone: str | None
    directory: Path

    @property
    def note(self) -> Path:
        """The file that tells why the run failed."""
        return note_of(self.directory)

    @property
    def name(self) -> str:
        """A few words for whoever waits."""
        chosen = [f"{key}={value}" for key, value in self.cell.chosen.items()]
        return ", ".join([self.cell.label, *chosen, f"seed {self.cell.seed}"])

    def read(self) -> tuple[Outcome, Result | None]:
        """Return what became of the run, and its result where it has one."""
        folder = RunDir(self.directory)
        if folder.clients.exists():
            try:
                result = Result.load(self.directory)
            except (DamagedError, InputError) as error:
                return Outcome("damaged", str(error)), None
            state = Outcome("diverged", result.diverged) if result.diverged else Outcome("done")
            return state, result
        try:
            told = json.loads(self.note.read_text(encoding="utf-8"))
            return Outcome(str(told["state"]), str(told["reason"])), None
        except FileNotFoundError:
            return Outcome("begun" if folder.experiment.exists() else "waiting"), None
        except (OSError, ValueError, KeyError, TypeError) as error:
            return Outcome("failed", f"{self.note} cannot be read: {error}"), None
