"""Which rounds of a private run were begun: one that is begun twice has left clients twice."""

from __future__ import annotations

import json

from fedparity.errors import DamagedError
from fedparity.records.rundir import RunDir


class Releases:
    """The rounds that were begun, on disk before each is, so that a killed run knows of its last.

    Parameters
    ----------
    folder
        The run directory.
    done
        The rounds that its checkpoint counts.
    """

    def __init__(self, folder: RunDir, done: int) -> None:
        self.folder, self.file = folder, folder.path / "releases.json"
        self.begun, self.twice = done, list[int]()
        if self.file.exists():
            self._read()

    def _read(self) -> None:
        try:
            found = json.loads(self.folder.read(self.file))
            self.begun = max(self.begun, int(found["begun"]))
            self.twice = [int(round) for round in found["twice"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{self.file} cannot be read: {error}") from error

    def begin(self, round: int) -> None:
        """Write down that a round begins."""
        if round <= self.begun and round not in self.twice:
            self.twice.append(round)
        self.begun = max(self.begun, round)
        self.folder.write_text(self.file, json.dumps({"begun": self.begun, "twice": self.twice}))

    @property
    def because(self) -> str:
        """Why there is no epsilon; empty if nothing was released twice."""
        if not self.twice:
            return ""
        return (
            f"the run was ended within round {self.twice[0]}, which has left clients a second time "
            "with other noise"
        )
