"""Products of the updates of a round: of all pairs, with a vector, or mixed into one.

Updates are read a block of columns at a time, by all cores. What is taken of a block may be in a
lower precision; it is added up in float64 and in one order, so that in a run, whose operations have
one thread each, the number of cores does not show in the sum.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedparity.core.crew import Crew, cores

Updates = npt.NDArray[np.floating[Any]]
Kind = np.dtype[np.floating[Any]]
Numbers = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
BLOCK = 1 << 19
"""Numbers of the updates that a worker multiplies with each other at once."""

READ = 1 << 22
"""Numbers of the updates that a worker reads at once: it is not worth another worker below."""


def gram_matrix(updates: Updates, kind: Kind) -> Numbers:
    """Return the inner products of all pairs of rows.

    >>> gram_matrix(np.array([[1.0, 2.0], [0.0, 3.0]]), np.dtype(np.float32)).tolist()
    [[5.0, 6.0], [6.0, 9.0]]
    """
    return _summed(updates, kind, BLOCK, _pairs if updates.size <= BLOCK else _pairs_beside)


def _pairs(rows: Updates, _: slice) -> Updates:
    """Return a block's products of pairs; numpy computes one half of them."""
    return rows @ rows.T


def _pairs_beside(rows: Updates, _: slice) -> Updates:
    """Return the same by torch: numpy's calls for few rows, side by side, wait for each other."""
    here = torch.from_numpy(rows)
    found: Updates = (here @ here.T).numpy()
    return found


def inner_products(updates: Updates, g: Numbers) -> Numbers:
    """Return the inner product of every row with ``g``, in the updates' own precision.

    >>> inner_products(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([1.0, 0.5])).tolist()
    [2.0, 1.5]
    """
    narrow = g.astype(updates.dtype, copy=False)
    return _summed(updates, updates.dtype, READ, lambda block, columns: block @ narrow[columns])


def mixture(
    coefficients: Numbers, updates: Updates, kind: Kind, rows: Ids | None = None
) -> Numbers:
    """Return the combination of all or some rows with these coefficients.

    >>> mixture(np.array([2.0, 1.0]), np.array([[1.0, 2.0], [0.0, 3.0]]), np.dtype(float)).tolist()
    [2.0, 7.0]
    """
    narrow = coefficients.astype(kind, copy=False)

    def mixed(block: Updates, _: slice) -> Updates:
        return narrow @ (block if rows is None else block[rows])

    parts = list(_blocks(updates, kind, READ, mixed))
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).astype(np.float64, copy=False)


def _summed(
    updates: Updates, kind: Kind, numbers: int, term: Callable[[Updates, slice], Updates]
) -> Numbers:
    """Add up a term of every block of columns."""
    parts = _blocks(updates, kind, numbers, term)
    found = next(parts).astype(np.float64, copy=False)
    for part in parts:
        found += part
    return found


def _blocks(
    updates: Updates, kind: Kind, numbers: int, one: Callable[[Updates, slice], Updates]
) -> Iterator[Updates]:
    """Go through the updates, a block of columns at a time, on all cores.

    What leaves the range of a precision is infinite, without a word: the caller looks.
    """
    width = updates.shape[1]
    if updates.size > numbers:
        width = max(1, numbers // len(updates))
    blocks = [slice(start, start + width) for start in range(0, updates.shape[1], width)]

    def at(piece: int, _: None) -> Updates:
        with np.errstate(over="ignore", invalid="ignore"):
            return one(updates[:, blocks[piece]].astype(kind, copy=False), blocks[piece])

    if len(blocks) == 1:  # of a small model, whose rounds are short
        yield at(0, None)
    else:
        yield from _crew().stream(len(blocks), at)


@functools.cache
def _crew() -> Crew[None]:
    """Return a worker a core."""
    return Crew([None] * cores())


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_crew.cache_clear)
