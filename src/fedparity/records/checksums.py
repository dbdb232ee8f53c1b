"""Checksums: a file is read as it was written, or one line says that it is not.

``checksums.json`` holds the SHA-256 of files that lie beside it, for each the newest and the one
before: it is written first, then the file takes its place. So a process that is killed between the
two, and one that reads meanwhile, find a file that is known.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedparity.errors import DamagedError

FILE = "checksums.json"
READ_BYTES = 1 << 20


class Checksums:
    """The checksums of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE

    def exist(self) -> bool:
        """Tell whether there are any."""
        return self.file.exists()

    def warn_if_absent(self) -> None:
        """Warn of a folder without checksums."""
        if not self.exist():
            folder = self.file.parent
            warnings.warn(f"{folder} has no {FILE}: it is read unverified", stacklevel=3)

    def known(self) -> dict[str, list[str]]:
        """Return the checksums that each file may have."""
        try:
            found = json.loads(self.file.read_bytes())
            return {str(name): [str(one) for one in sums] for name, sums in found.items()}
        except FileNotFoundError:
            raise DamagedError(f"{self.file} is missing") from None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            told = " ".join(str(error).split())
            raise DamagedError(
                f"{self.file} is damaged ({told}): restore it, or delete it to read what lies "
                "beside it as it is"
            ) from error

    def read(self, file: Path) -> bytes:
        """Return what a file holds, if it is what was written, or without checksums as it is."""
        try:
            content = file.read_bytes()
        except OSError as error:
            raise _unreadable(file, error) from error
        if self.exist() and not self._knows(file, hashlib.sha256(content).hexdigest()):
            raise DamagedError(
                f"{file} is not as fedparity wrote it (damaged, or edited since): restore it, or "
                f"delete {self.file} to read it as it is"
            )
        return content

    def verify(self, file: Path) -> None:
        """Refuse a file that is not what was written, without keeping it in memory."""
        try:
            found = sha256(file)
        except OSError as error:
            raise _unreadable(file, error) from error
        if not self._knows(file, found):
            raise DamagedError(f"{file} is damaged")

    def _knows(self, file: Path, found: str) -> bool:
        return found in self.known().get(file.name, ())

    @contextmanager
    def placing(self, file: Path) -> Iterator[Path]:
        """Give a path to write a file to; afterwards the file takes its place, on disk."""
        beside = file.with_name(file.name + ".part")
        yield beside
        sync(beside)
        known = self.known() if self.exist() else {}
        before = sha256(file) if file.exists() else None
        kept = [one for one in known.get(file.name, ()) if one == before]
        self._write({**known, file.name: [sha256(beside), *kept]})
        beside.replace(file)

    def take(self, files: Iterable[Path]) -> None:
        """Take the checksums of files as they are."""
        self._write({file.name: [sha256(file)] for file in files})

    def _write(self, known: dict[str, list[str]]) -> None:
        beside = self.file.with_name(FILE + ".part")
        beside.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        sync(beside)
        beside.replace(self.file)


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, read block by block."""
    found = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(READ_BYTES):
            found.update(block)
    return found.hexdigest()


def sync(file: Path) -> None:
    """See a file written to disk, so that its name never stands for less."""
    with file.open("r+b") as handle:
        os.fsync(handle.fileno())


def _unreadable(file: Path, error: OSError) -> DamagedError:
    if isinstance(error, FileNotFoundError):
        return DamagedError(f"{file} is missing")
    return DamagedError(f"{file} cannot be read ({error.strerror})")
