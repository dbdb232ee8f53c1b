"""Inputs of several tensors, such as ids and mask: packed into one, and where each stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.data import build
from fedparity.errors import InputError, unknown
from fedparity.learning.unpacking import Field, Fields

EXACT = 1 << 24
"""Whole numbers up to this are the same in float32."""


def packed(x: Mapping[str, Any]) -> tuple[npt.NDArray[Any], Fields]:
    """Return a dict of arrays ``[N, ...]`` as one array ``[N, places]``, and its fields.

    It is int64 if all are whole numbers; beside fractions, whole numbers must be below 2**24.

    >>> values, fields = packed({"ids": [[3, 1], [2, 0]], "mask": [[1, 1], [1, 0]]})
    >>> values.tolist(), fields[1]
    ([[3, 1, 1, 1], [2, 0, 1, 0]], Field(name='mask', shape=(2,), whole=True))
    """
    if not x:
        raise InputError("x is an empty dict: give the model's inputs by name")
    pieces = {str(name): _one(str(name), value) for name, value in x.items()}
    counts = {name: len(piece) for name, piece in pieces.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"'{name}' has {n}" for name, n in counts.items())
        raise InputError(f"one row an example is expected in every input: {said}")
    fields = tuple(Field(n, p.shape[1:], p.dtype.kind in "biu") for n, p in pieces.items())
    kind: type[np.generic] = np.int64
    if not all(field.whole for field in fields):
        doubles = any(piece.dtype == np.float64 for piece in pieces.values())
        kind = np.float64 if doubles else np.float32
        for field in fields:
            if field.whole and np.abs(pieces[field.name]).max() >= EXACT:
                raise InputError(
                    f"input '{field.name}' has whole numbers from {EXACT} on, which are not exact "
                    "beside fractions: number its tokens from 0"
                )
    flat = [piece.reshape(len(piece), -1).astype(kind) for piece in pieces.values()]
    return np.concatenate(flat, axis=1), fields


def _one(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        piece = build.array(value)
        return build.inputs(piece[:, None] if piece.ndim == 1 else piece)
    except InputError as error:
        raise InputError(f"input '{name}': {error}") from None


def packed_as(x: Mapping[str, Any], fields: Fields) -> npt.NDArray[Any]:
    """Return new inputs packed as those that were trained on; others are refused."""
    for name in x:
        if name not in {field.name for field in fields}:
            raise unknown("input", str(name), [field.name for field in fields])
    missing = [field.name for field in fields if field.name not in x]
    if missing:
        raise InputError(f"input '{missing[0]}' is missing: the model reads it")
    values, found = packed({field.name: x[field.name] for field in fields})
    for mine, theirs in zip(found, fields, strict=True):
        if mine.shape != theirs.shape:
            raise InputError(
                f"input '{mine.name}' has shape {mine.shape} an example, not {theirs.shape}"
            )
        if theirs.whole and not mine.whole:
            raise InputError(f"input '{mine.name}' holds fractions where whole numbers were")
    return values
