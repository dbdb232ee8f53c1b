"""The run directory: what a run leaves on disk, and how it is found again."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedparity.core import lock
from fedparity.core.history import History
from fedparity.core.state import RunState, old
from fedparity.errors import InputError

LSTAR = "lstar.parquet"
"""Every client's L*; in ``experiment.yaml`` it stands for numbers that were given for many."""
LARGEST_FILE = 1 << 20
"""An experiment file is a page of text; more than this is not read."""


class RunDir:
    """Files of one run.

    ``experiment.yaml`` (complete, re-runnable), ``history.parquet``, ``clients.parquet``,
    ``lstar.parquet``, ``model.safetensors``, ``checkpoint/``, ``log.jsonl``, ``report.html``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.experiment = self.path / "experiment.yaml"
        self.history = self.path / "history.parquet"
        self.clients = self.path / "clients.parquet"
        self.lstar = self.path / LSTAR
        self.model = self.path / "model.safetensors"
        self.checkpoint = self.path / "checkpoint"
        self.log = self.path / "log.jsonl"
        self.report = self.path / "report.html"
        self.pieces = self.path / "history"
        self._noting: io.BufferedWriter | None = None

    def held(self, what: str) -> AbstractContextManager[None]:
        """Hold the lock on the directory; one that another process writes to is refused.

        So is one with links in it: what is written here would be written where they lead.
        """
        for file in self.path.rglob("*"):
            if file.is_symlink():
                raise InputError(f"{file} is a link: put there what it leads to, or remove it")
        return lock.held(self.path, what)

    def require_free(self) -> None:
        """Refuse a directory that another process writes to."""
        lock.require_free(self.path)

    def create(self, settings: dict[str, Any]) -> None:
        """Begin a new run in the directory, whose lock is held; one that holds a run is refused."""
        self._require_empty()
        self._write(settings)

    def require_unused(self) -> None:
        """Refuse a directory that is in use, holds a run, or anything else."""
        self.require_free()
        self._require_empty()

    def _require_empty(self) -> None:
        if self.experiment.exists():
            raise InputError(
                f"{self.path} already holds a run: resume it with 'fedparity resume {self.path}', "
                "or choose another directory"
            )
        if self.path.exists() and not (self.path.is_dir() and self._names() <= {lock.LOCK}):
            raise InputError(f"{self.path} is not an empty directory: choose another one")

    def _names(self) -> set[str]:
        return {file.name for file in self.path.iterdir()}

    def settings(self) -> dict[str, Any]:
        """Return the settings of the run, a file of its own named so that it is found."""
        settings = self._read()
        if settings.get("lstar") == LSTAR:
            settings["lstar"] = str(self.lstar)
        return settings

    def _read(self) -> dict[str, Any]:
        if not self.experiment.exists():
            raise InputError(f"{self.path} holds no run (no experiment.yaml)")
        return read_yaml(self.experiment)

    def reopen(self, rounds: int) -> None:
        """Let a run go on to ``rounds``: what it left when it was finished is no longer true."""
        for file in (self.clients, self.model, self.report):
            file.unlink(missing_ok=True)
        self.update(rounds)

    def update(self, rounds: int, **record: Any) -> None:
        """Write down to how many rounds the run went, and more for its record."""
        settings = self._read()
        settings["rounds"] = rounds
        settings["record"] = {**settings.get("record", {}), **record}
        self._write(settings)

    def _write(self, settings: dict[str, Any]) -> None:
        _write(self.experiment, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))

    def has_checkpoint(self) -> bool:
        """Tell whether a run got as far as its first checkpoint."""
        return self.checkpoint.exists() or old(self.checkpoint).exists()

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse, with a reason, settings that are not those of the run."""
        written = self._read()
        for key, mine in settings.items():
            if key not in ("record", "rounds") and written.get(key) != mine:
                raise InputError(
                    f"cannot resume {self.path}: its {key} is {written.get(key)!r}, "
                    f"here it is {mine!r}"
                )

    def save(self, state: RunState, history: History) -> None:
        """Write a checkpoint: first the history up to it, then the state."""
        history.flush(self.pieces, state.round)
        state.save(self.checkpoint)

    def write_table(self, file: Path, table: pd.DataFrame) -> None:
        """Write a table beside and rename it."""
        beside = file.with_name(file.name + ".part")
        table.to_parquet(beside, index=False)
        beside.replace(file)

    def note(self, **entry: Any) -> None:
        """Append one line to the log, and see it written."""
        if self._noting is None:  # stays open: a run of short rounds notes often
            self._noting = self.log.open("ab")
        self._noting.write((json.dumps(entry) + "\n").encode())
        self._noting.flush()

    def trim_log(self, round: int) -> None:
        """Drop what was logged after the round a run is resumed from."""
        self.close()
        if not self.log.exists():
            return
        lines = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("round", 0) <= round:
                lines.append(line)
        _write(self.log, "".join(line + "\n" for line in lines))

    def close(self) -> None:
        """Close the log, if it is open."""
        if self._noting is not None:
            self._noting.close()
            self._noting = None

    def finished(self) -> None:
        """Remove what only an unfinished run needs."""
        shutil.rmtree(self.pieces, ignore_errors=True)


def read_yaml(file: Path) -> dict[str, Any]:
    """Read a table from a YAML file, saying in one line what is wrong with it."""
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InputError(f"{file} is too large for an experiment file")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(f"{file} is not valid YAML: {problem}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds no settings: expected lines such as 'data: digits'")
    return content


def _write(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)
