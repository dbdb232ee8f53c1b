"""The run directory: what a run leaves on disk, and how it is found again."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pyarrow.lib import ArrowException

from fedparity.data.prepare import FILE as PREPARATION
from fedparity.errors import DamagedError, InputError
from fedparity.records import lock
from fedparity.records.checksums import Checksums
from fedparity.records.history import History, chain
from fedparity.records.state import RunState, checkpoints, drop_newest, read_numbers

LSTAR = "lstar.parquet"
"""Every client's L*; in ``experiment.yaml`` it stands for numbers that were given for many."""
LARGEST_FILE = 1 << 20
"""An experiment file is a page of text; more than this is not read."""


class RunDir:
    """Files of one run.

    ``experiment.yaml`` (complete, re-runnable), ``history.parquet``, ``clients.parquet``,
    ``lstar.parquet``, ``lstar_curves.parquet``, ``preparation.json`` (of own tables),
    ``model.safetensors``, ``last.safetensors`` where the model kept is not the last,
    ``personal.safetensors`` where clients have models of their own, ``predictions.parquet`` or, of
    sites, ``groups.parquet``, ``unseen.parquet`` where clients never trained, ``checkpoint/`` and
    the one before in ``checkpoint.old/``, ``log.jsonl``, ``report.html``; ``checksums.json`` of
    what is read again, and ``lock`` while a process writes to the directory.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.experiment = self.path / "experiment.yaml"
        self.history = self.path / "history.parquet"
        self.clients = self.path / "clients.parquet"
        self.lstar = self.path / LSTAR
        self.preparation = self.path / PREPARATION
        self.model = self.path / "model.safetensors"
        self.last = self.path / "last.safetensors"
        self.unseen = self.path / "unseen.parquet"
        self.personal = self.path / "personal.safetensors"
        self.predictions = self.path / "predictions.parquet"
        self.groups = self.path / "groups.parquet"
        self.lstar_curves = self.path / "lstar_curves.parquet"
        self.checkpoint = self.path / "checkpoint"
        self.log = self.path / "log.jsonl"
        self.report = self.path / "report.html"
        self.pieces = self.path / "history"
        self.checksums = Checksums(self.path)
        self._noting: io.BufferedWriter | None = None
        self._logged, self._logged_bytes = hashlib.sha256(), 0

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
            self.verify_lstar()
            settings["lstar"] = str(self.lstar)
        return settings

    def _read(self) -> dict[str, Any]:
        if not self.experiment.exists():
            raise InputError(f"{self.path} holds no run (no experiment.yaml)")
        return parse_yaml(self.read(self.experiment), self.experiment)

    def read(self, file: Path) -> bytes:
        """Return what a file of the run holds, if it is what was written."""
        return self.checksums.read(file)

    def verify_lstar(self) -> None:
        """Refuse L* that is not what was written; there may be none yet."""
        if self.lstar.exists():
            self.read(self.lstar)

    def read_table(self, file: Path) -> pd.DataFrame:
        """Return a table of the run, if it is what was written."""
        content = self.read(file)
        try:
            return pd.read_parquet(io.BytesIO(content))
        except (ArrowException, OSError, ValueError) as error:
            told = " ".join(str(error).split())
            raise DamagedError(f"{file} is damaged: {told}") from error

    def reopen(self, checkpoint: Path, rounds: int) -> None:
        """Let a run go on to ``rounds``: what it left when it was finished is no longer true."""
        for file in self._of_the_end():
            file.unlink(missing_ok=True)
        if checkpoint != self.checkpoint and self.checkpoint.exists():
            drop_newest(self.checkpoint)
        self.update(rounds)

    def _of_the_end(self) -> tuple[Path, ...]:
        """Return what a run leaves when it is finished."""
        ends = (self.clients, self.model, self.last, self.personal, self.predictions, self.report)
        return (*ends, self.unseen, self.groups)

    def restart(self) -> None:
        """Let a run begin again that has no checkpoint: what else it left is no longer true."""
        if self.clients.exists():
            raise DamagedError(
                f"{self.path} is finished and has no checkpoint to go on from: run it again in a "
                "new directory"
            )
        lines = self.log.read_bytes().splitlines(keepends=True) if self.log.exists() else []
        kept = [line for line in lines if line.startswith(b'{"round": 0, "lstar"')]
        if lines != kept:
            warnings.warn(f"{self.path} has no checkpoint: its run begins again", stacklevel=3)
        for file in (*self._of_the_end(), self.history):
            file.unlink(missing_ok=True)
        self._write_log(b"".join(kept))
        shutil.rmtree(self.pieces, ignore_errors=True)

    def update(self, rounds: int, **record: Any) -> None:
        """Write down to how many rounds the run went, and more for its record."""
        settings = self._read()
        settings["rounds"] = rounds
        settings["record"] = {**settings.get("record", {}), **record}
        self._write(settings)

    def _write(self, settings: dict[str, Any]) -> None:
        with self.checksums.placing(self.experiment) as beside:
            text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
            beside.write_text(text, encoding="utf-8")

    def has_checkpoint(self) -> bool:
        """Tell whether a run got as far as its first checkpoint."""
        return bool(checkpoints(self.checkpoint))

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
        state.save(self.checkpoint, history=history.chain, log=self._log_mark())

    def newest(self) -> Path | None:
        """Return the newest checkpoint that is whole, with its history; None if there is none.

        A damaged one is told of, and the one before is taken.
        """
        self.checksums.warn_if_absent()
        if not self.checksums.exist():
            unread = {self.log, self.report, self.path / lock.LOCK}
            files = {file for file in self.path.iterdir() if file.is_file()} - unread
            self.checksums.take(files)
        folders, damaged = checkpoints(self.checkpoint), dict[str, None]()
        if folders and self.lstar.name in self.checksums.known():
            self.read(self.lstar)
        for folder in folders:
            try:
                round = self._verify(folder)
            except DamagedError as error:
                damaged.setdefault(str(error))
                continue
            for problem in damaged:
                warnings.warn(
                    f"{problem}: going on from the checkpoint before, of round {round}",
                    stacklevel=3,
                )
            return folder
        if damaged:
            raise DamagedError(
                f"{self.path} has no whole checkpoint ({'; '.join(damaged)}): begin a new run with "
                f"'fedparity run {self.experiment}'"
            )
        return None

    def _verify(self, checkpoint: Path) -> int:
        """Return the round of a checkpoint; refuse one that is damaged, or whose files are."""
        numbers = read_numbers(checkpoint)
        if not {"history", "log"} <= set(numbers):
            raise DamagedError(f"{checkpoint} is damaged: it says nothing of history or log")
        round: int = numbers["round"]
        if not self._has_pieces(numbers):
            whole = self.read_table(self.history) if self.history.exists() else None
            if whole is None or not whole["round"].max() >= round:
                raise DamagedError(f"the history in {self.pieces} is damaged")
        return round

    def _has_pieces(self, numbers: dict[str, Any]) -> bool:
        """Tell whether the history of a checkpoint is there in pieces."""
        return chain(self.pieces, numbers["round"]) == str(numbers["history"])

    def restore(self, checkpoint: Path, history: History) -> None:
        """Give history and log back what they held at a checkpoint.

        A finished run has its history in one table, an unfinished one in pieces.
        """
        numbers = read_numbers(checkpoint)
        if self._has_pieces(numbers):
            history.restore(self.pieces, numbers["round"])
        else:
            history.take(self.read_table(self.history), numbers["round"])
            shutil.rmtree(self.pieces, ignore_errors=True)
        self._restore_log(**numbers["log"])

    def write_table(self, file: Path, table: pd.DataFrame) -> None:
        """Write a table beside and rename it."""
        with self.checksums.placing(file) as beside:
            table.to_parquet(beside, index=False)

    def write_text(self, file: Path, text: str) -> None:
        """Write a text beside and rename it."""
        with self.checksums.placing(file) as beside:
            beside.write_text(text, encoding="utf-8")

    def note(self, **entry: Any) -> None:
        """Append one line to the log, and see it written."""
        if self._noting is None:  # stays open: a run of short rounds notes often
            self._noting = self.log.open("ab")
        self._noting.write((json.dumps(entry) + "\n").encode())
        self._noting.flush()

    def _log_mark(self) -> dict[str, Any]:
        """Return how long the log is, and its checksum; what was counted is not read again."""
        if self.log.exists():
            with self.log.open("rb") as handle:
                handle.seek(self._logged_bytes)
                new = handle.read()
            self._logged.update(new)
            self._logged_bytes += len(new)
        return {"length": self._logged_bytes, "sha256": self._logged.hexdigest()}

    def _restore_log(self, length: int, sha256: str) -> None:
        """Drop what was logged since a checkpoint; a damaged log is put aside."""
        self.close()
        content = self.log.read_bytes()[:length] if self.log.exists() else b""
        if hashlib.sha256(content).hexdigest() != sha256:
            content, aside = b"", self.log.with_name("log.damaged.jsonl")
            if self.log.exists():
                self.log.replace(aside)
            warnings.warn(
                f"{self.log} is damaged: what is left of it is in {aside.name}, and a new one "
                "begins",
                stacklevel=4,
            )
        self._write_log(content)

    def _write_log(self, content: bytes) -> None:
        beside = self.log.with_name(self.log.name + ".part")
        beside.write_bytes(content)
        beside.replace(self.log)
        self._logged, self._logged_bytes = hashlib.sha256(content), len(content)

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
        with file.open("rb") as handle:
            content = handle.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    return parse_yaml(content, file)


def parse_yaml(content: bytes, file: Path) -> dict[str, Any]:
    """Return the table that the content of a YAML file tells."""
    if len(content) > LARGEST_FILE:
        raise InputError(f"{file} is too large for an experiment file")
    try:
        found = yaml.safe_load(content.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(f"{file} is not valid YAML: {problem}") from error
    if not isinstance(found, dict):
        raise InputError(f"{file} holds no settings: expected lines such as 'data: digits'")
    return found
