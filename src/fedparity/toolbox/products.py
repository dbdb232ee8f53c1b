"""Products of the updates of a round, in float64: of all pairs, with a vector, or mixed into one.

Updates are read a block of columns at a time, by all cores, and the blocks' terms are added up in
one order: in a run, whose operations have one thread each, the number of cores does not show in the
sum (of runs side by side, in that of the first). Numpy's ``dot`` is taken, and not its operator:
that holds Python's lock where the result is small, however large the operands, and other workers
would wait.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.workers import Crew, cores

Updates = npt.NDArray[np.floating[Any]]
Numbers = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
PRODUCT_BLOCK = 1 << 19
"""Numbers of the updates that a worker reads at once: it is not worth another worker below."""


def gram_matrix(updates: Updates, *, rough: bool = False) -> Numbers:
    """Return the inner products of all pairs of rows; numpy computes one half of them.

    ``rough`` lets the blocks of large updates be multiplied in the updates' own precision, in half
    the time; their terms are added in float64. In float32 an entry is then off by about 1e-7 of the
    two lengths.

    >>> gram_matrix(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [[5.0, 6.0], [6.0, 9.0]]
    """
    own = rough and updates.size > PRODUCT_BLOCK

    def products(block: Updates, _: slice) -> Numbers:
        found: Numbers = np.dot(block, block.T).astype(np.float64, copy=False)
        return found

    return _sum(_blocks(updates, products, updates.dtype if own else np.float64))


def inner_products(updates: Updates, g: Numbers) -> Numbers:
    """Return the inner product of every row with ``g``.

    >>> inner_products(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([1.0, 0.5])).tolist()
    [2.0, 1.5]
    """
    return _sum(_blocks(updates, lambda block, columns: np.dot(block, g[columns])))


def mixture(coefficients: Numbers, updates: Updates) -> Numbers:
    """Return the combination of the rows with these coefficients.

    >>> mixture(np.array([2.0, 1.0]), np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [2.0, 7.0]
    """
    parts = list(_blocks(updates, lambda block, _: np.dot(coefficients, block)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _sum(terms: Iterator[Numbers]) -> Numbers:
    found = next(terms)
    for term in terms:
        found += term
    return found


def _blocks(
    updates: Updates,
    one: Callable[[Numbers, slice], Numbers],
    kind: npt.DTypeLike = np.float64,
) -> Iterator[Numbers]:
    """Go through the updates, a block of columns at a time and of this kind, on all cores."""
    width = updates.shape[1]
    if updates.size > PRODUCT_BLOCK:
        width = max(1, PRODUCT_BLOCK // len(updates))
    blocks = [slice(start, start + width) for start in range(0, updates.shape[1], width)]

    def at(piece: int, _: None) -> Numbers:
        columns = blocks[piece]
        return one(np.ascontiguousarray(updates[:, columns], dtype=kind), columns)

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
