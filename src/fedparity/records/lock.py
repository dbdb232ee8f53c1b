"""The lock on a directory: one process at a time writes to it.

The lock is the operating system's, on the file ``lock`` of the directory, and so it ends with its
process, however that ends. The file tells who holds it, for the one who is refused.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedparity.errors import InputError

LOCK = "lock"
FAR = 1 << 30
"""Windows lets nobody read the byte that is locked: it lies behind what the file tells."""


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock on a folder, which is made if need be; refuse one that is in use.

    ``what`` tells who is refused what is going on there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = _taken(folder)
    try:
        told = json.dumps({"pid": os.getpid(), "host": platform.node(), "what": what})
        os.ftruncate(handle, 0)
        os.write(handle, told.encode())
        yield
    finally:
        with suppress(OSError):  # Windows does not remove a file that is open
            (folder / LOCK).unlink()
        os.close(handle)


def require_free(folder: Path) -> None:
    """Refuse a folder that another process holds; nothing is written."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        _take(handle, folder)
    finally:
        os.close(handle)


def _taken(folder: Path) -> int:
    """Return the open lock file, locked."""
    while True:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(handle, folder)
            if _is_at(handle, folder / LOCK):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # of a holder who ended and removed it meanwhile: the next one counts


def _is_at(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _take(handle: int, folder: Path) -> None:
    try:
        _lock(handle)
    except BlockingIOError:
        raise InputError(
            f"{folder} is in use by {_holder(handle)}: let it end, or choose another directory"
        ) from None
    except OSError as error:  # some network file systems have no locks
        warnings.warn(
            f"{folder} cannot be locked ({error.strerror}): see that nothing else writes to it",
            stacklevel=4,
        )


def _holder(handle: int) -> str:
    """Return who holds the lock, as the file tells."""
    try:
        told = json.loads(os.read(handle, 10_000))
        return f"fedparity (pid {told['pid']} on {told['host']}: {told['what']})"
    except (OSError, ValueError, KeyError, TypeError):  # the holder is about to write it
        return "another fedparity process"
