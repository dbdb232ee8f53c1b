"""The two forms in which CIFAR-10 is published: binary and python batches.

The python batches are pickle files. Unpickling runs whatever the file says, so they are not
unpickled: ``pickletools`` lists the file's operations without running any, and the two literals
that matter, the image bytes and the list of labels, are picked out of that list.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

Bytes = npt.NDArray[np.uint8]
IMAGE = (3, 32, 32)
PIXELS = 3 * 32 * 32
LARGEST = 256 * 1024 * 1024
IN_A_LIST = {"MARK", "APPEND", "APPENDS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "FRAME"}
WHOLE_NUMBERS = {"BININT", "BININT1", "BININT2", "INT", "LONG1"}


def read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Return images ``[N, 3, 32, 32]`` and labels of a ``.bin`` batch: label, pixels, repeated."""
    size = path.stat().st_size
    if size == 0 or size % (1 + PIXELS) or size > LARGEST:
        raise InputError(f"{path} has {size} bytes, not a multiple of {1 + PIXELS}: get it again")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 1:].reshape(-1, *IMAGE), _checked(records[:, 0], path)


def read_python(path: Path) -> tuple[Bytes, Bytes]:
    """Return images ``[N, 3, 32, 32]`` and labels of a python batch, without unpickling it."""
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} is larger than any CIFAR-10 batch")
    try:
        data, labels = _literals(pickletools.genops(path.read_bytes()))
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise InputError(f"{path} is not a CIFAR-10 python batch ({error})") from None
    if not labels or len(data) != len(labels) * PIXELS:
        raise InputError(
            f"{path} is not a CIFAR-10 python batch: {len(labels)} labels, {len(data)} bytes"
        )
    images = np.frombuffer(data, dtype=np.uint8).reshape(-1, *IMAGE)
    if not 0 <= min(labels) <= max(labels) < 256:
        raise InputError(f"{path} has labels outside 0 to 9")
    return images, _checked(np.asarray(labels, dtype=np.uint8), path)


def _literals(operations: Iterator[tuple[Any, Any, int | None]]) -> tuple[bytes, list[int]]:
    """Pick the long literal after the key ``data`` and the list of numbers after ``labels``."""
    key, data, labels = b"", b"", list[int]()
    for operation, argument, _ in operations:
        if isinstance(argument, str | bytes | bytearray):
            literal = _as_bytes(argument)
            if literal in (b"data", b"labels"):
                key = literal
            elif key == b"data" and len(literal) >= PIXELS:
                key, data = b"", literal
        if key == b"labels" and operation.name == "EMPTY_LIST" and not labels:
            key = b"numbers"
        elif key == b"numbers" and operation.name in WHOLE_NUMBERS:
            labels.append(int(argument))
        elif key == b"numbers" and operation.name not in IN_A_LIST:
            key = b""
    return data, labels


def _as_bytes(literal: str | bytes | bytearray) -> bytes:
    """Old pickles hold bytes as text, one letter a byte; other text is of no interest."""
    if isinstance(literal, str):
        return literal.encode("latin-1", errors="replace")
    return bytes(literal)


def _checked(labels: Bytes, path: Path) -> Bytes:
    if labels.max() > 9:
        raise InputError(f"{path} has label {labels.max()}, and CIFAR-10 has labels 0 to 9")
    return labels
