"""Arrays out of a ``.npz`` file, with sizes checked before they are allocated."""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

LARGEST = 1024**3


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays. Arrays of Python objects, which would need pickle, are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _member(archive, path, name) for name in names}
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a whole npz file ({error}): get it again") from None


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[Any]:
    try:
        announced = archive.getinfo(f"{name}.npy").file_size
    except KeyError:
        raise InputError(f"{path} has no array '{name}'") from None
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read:
            raise InputError(f"{path}: array '{name}' has format {version}, which is not known")
        shape, _, dtype = read[version](file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > min(announced, LARGEST):
            raise InputError(f"{path}: array '{name}' is not what its header says")
    with archive.open(f"{name}.npy") as file:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array
