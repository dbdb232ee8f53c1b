"""The idx format of MNIST and Fashion-MNIST, plain or gzipped.

A file is two zero bytes, a type code (8: unsigned bytes), the number of dimensions, one 32-bit
big-endian length a dimension, then the bytes.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

Bytes = npt.NDArray[np.uint8]
MOST_ITEMS = 10_000_000
UNSIGNED_BYTES = 8
CHUNK = 1 << 24


def read_idx(path: Path, item: tuple[int, ...]) -> Bytes:
    """Return the array ``[N, *item]`` of an idx file.

    The header is checked against ``item`` before anything is allocated, and the file must hold
    exactly what the header says.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            return _read(cast(IO[bytes], file), path, item)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): get it again") from None


def _read(file: IO[bytes], path: Path, item: tuple[int, ...]) -> Bytes:
    dimensions = 1 + len(item)
    header = file.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise InputError(f"{path} is not an idx file of bytes in {dimensions} dimensions")
    n, *rest = np.frombuffer(header, dtype=">u4", offset=4).tolist()
    if tuple(rest) != item or not 0 < n <= MOST_ITEMS:
        raise InputError(f"{path} says it holds {n} items of shape {tuple(rest)}, not {item}")
    size = n * math.prod(item)
    body = bytearray()  # grows with what is there, not with what is announced
    while len(body) < size and (more := file.read(min(CHUNK, size - len(body)))):
        body += more
    if len(body) < size or file.read(1):
        raise InputError(f"{path} does not hold the {n} items it announces: get it again")
    return np.frombuffer(body, dtype=np.uint8).reshape(n, *item)
