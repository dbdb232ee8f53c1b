"""The one tensor of a file of ``torch.save``, read without unpickling.

Such a file is a zip archive: ``data.pkl`` says in pickle how the tensor is put together, and
``data/0`` holds its numbers. Unpickling runs whatever a file says, so, as with CIFAR's batches,
``pickletools`` lists the operations without running any; the type and shape are picked out of that
list, and the numbers are read as they are.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

TYPES = {"torch FloatStorage": "<f4", "torch LongStorage": "<i8"}
"""The types of numbers that are read, as the file calls them."""
LARGEST = 1024**3
"""Bytes of a file, unpacked."""
DESCRIBED = 64 * 1024
"""Bytes of what a file says beside its numbers."""
WHOLE_NUMBERS = {"BININT", "BININT1", "BININT2"}
PASSED_OVER = {"MARK", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"}


def read_tensor(path: Path, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Return the one tensor of a file, of float32 or int64 and of this shape; None is any size."""
    try:
        with zipfile.ZipFile(path) as archive:
            numbers, pickled = _members(archive, path)
            kind, sizes = _described(archive.read(pickled), len(shape))
            item = np.dtype(kind).itemsize
            fits = all(want in (None, size) for want, size in zip(shape, sizes, strict=True))
            if not fits or min(sizes) < 1 or math.prod(sizes) * item != numbers.file_size:
                raise InputError(f"{path} holds a tensor {list(sizes)}, not {_told(shape)}")
            found = np.frombuffer(archive.read(numbers), kind).reshape(sizes)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        LookupError,
        RuntimeError,
        ValueError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not one tensor of torch.save ({error})") from None
    return found


def _members(archive: zipfile.ZipFile, path: Path) -> tuple[zipfile.ZipInfo, zipfile.ZipInfo]:
    """Return the numbers and their description, of sizes that may be read."""
    members = archive.infolist()
    if sum(member.file_size for member in members) > LARGEST:
        raise InputError(f"{path} is larger than any tensor it could be")
    numbers = [member for member in members if "/data/" in member.filename]
    pickled = [member for member in members if member.filename.endswith("/data.pkl")]
    order = [member for member in members if member.filename.endswith("/byteorder")]
    if any(member.file_size > DESCRIBED for member in (*pickled, *order)):
        raise ValueError("what it says beside its numbers is too long")
    if any(archive.read(member) != b"little" for member in order):
        raise ValueError("its numbers are stored the other way round")
    if len(numbers) != 1 or len(pickled) != 1:
        raise ValueError(f"it has {len(numbers)} of them")
    return numbers[0], pickled[0]


def _described(pickled: bytes, dimensions: int) -> tuple[str, tuple[int, ...]]:
    """Return the type of a tensor's numbers and its sizes; it begins at the first number.

    What stands after the reference to the storage is the place where the tensor begins, its sizes
    and its strides.
    """
    kind, told, after = "", list[int](), False
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "GLOBAL" and argument in TYPES:
            kind = TYPES[argument]
        elif operation.name == "BINPERSID":
            after = True
        elif after and operation.name in WHOLE_NUMBERS:
            told.append(int(argument or 0))
        elif after and operation.name not in PASSED_OVER and "TUPLE" not in operation.name:
            break
    start, sizes, strides = told[0], told[1 : 1 + dimensions], told[1 + dimensions :]
    if not kind or start != 0 or len(strides) != dimensions:
        raise ValueError(f"it has not {dimensions} dimensions of float32 or int64")
    rows = [math.prod(sizes[place + 1 :]) for place in range(dimensions)]
    if any(s != r for s, r, n in zip(strides, rows, sizes, strict=True) if n > 1):
        raise ValueError("its numbers do not stand row by row")
    return kind, tuple(sizes)


def _told(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('N' if size is None else str(size) for size in shape)}]"
