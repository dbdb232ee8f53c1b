"""What every statistic over clients agrees on: types, and what an undefined value is.

A statistic takes one number a client and gives one float. It is NaN when there is no client and
when a client's number is NaN: nothing is dropped silently. :class:`~fedparity.metrics.ClientFrame`
leaves out the clients without examples before it asks, and counts them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedparity.errors import InputError

FloatArray = NDArray[np.float64]
Direction = Literal["higher", "lower"]

UNDEFINED: FloatArray = np.array([np.nan])
UNDEFINED.setflags(write=False)


def as_vector(values: ArrayLike) -> FloatArray:
    """Return the values as float64, or a single NaN if there is none or one of them is NaN."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise InputError(f"one number a client is expected, got an array of shape {vector.shape}")
    return UNDEFINED if vector.size == 0 or np.isnan(vector).any() else vector


def as_pair(values: ArrayLike, others: ArrayLike, *, what: str) -> tuple[FloatArray, FloatArray]:
    """Return two vectors over the same clients, both undefined if either is."""
    shapes = np.shape(values), np.shape(others)
    if shapes[0] != shapes[1]:
        raise InputError(f"values of shape {shapes[0]} but {what} of shape {shapes[1]}")
    left, right = as_vector(values), as_vector(others)
    if np.isnan(left).any() or np.isnan(right).any():
        return UNDEFINED, UNDEFINED
    return left, right


def as_weights(values: ArrayLike, weights: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return values and weights that sum to one, both undefined if the weights sum to zero."""
    vector, parts = as_pair(values, weights, what="weights")
    if (parts < 0).any():
        raise InputError(f"weights are numbers >= 0, got {parts.min():g}")
    total = parts.sum()
    return (vector, parts / total) if total != 0 else (UNDEFINED, UNDEFINED)
