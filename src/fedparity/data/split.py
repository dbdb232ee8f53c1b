"""One of the three splits of a federation: all clients, client after client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]
Groups = Mapping[str, npt.NDArray[np.int16]]
LINE = 64
"""Bytes to which torch aligns tensors that it allocates."""


@dataclass(frozen=True, eq=False)
class Split:
    """The train, validation or test examples of every client in two tensors.

    The examples of client k are the rows ``offsets[k]:offsets[k + 1]``; nothing is kept a client.

    Parameters
    ----------
    x
        Inputs ``[N, ...]``, floating point.
    y
        Targets ``[N]``: int64 classes, or floating point values; ``[N, T]`` for sequences.
    offsets
        int64 ``[K + 1]``, from 0 to N.
    groups
        Of each kind of group, such as ``sex``, the group of each row ``[N]``: a place in the names
        that the federation's ``groups`` has for that kind. No model sees them.
    """

    x: Tensor
    y: Tensor
    offsets: Ints
    groups: Groups = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Numpy's memory begins anywhere: once in its place, rows of whole lines stay views.
        if self.x.device.type == "cpu" and self.x.data_ptr() % LINE:
            object.__setattr__(self, "x", room_for(self.x.shape, self.x.dtype).copy_(self.x))

    @cached_property
    def sizes(self) -> Ints:
        """The number of examples of each client, ``[K]``."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.y)

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of client ``k`` as views."""
        first, last = int(self.offsets[k]), int(self.offsets[k + 1])
        return self.x[first:last], self.y[first:last]

    def aligned(self, k: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of client ``k`` where its own tensors would be in memory.

        Where rows begin decides in which order a processor adds them, hence the last bits.
        """
        x, y = self.client(k)
        return _aligned(x), _aligned(y)

    @cached_property
    def owner(self) -> Tensor:
        """The client of each row, int64 ``[N]``."""
        places = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return torch.from_numpy(places).to(self.y.device)

    def only(self, clients: Sequence[int]) -> Split:
        """Return the examples of these clients alone, in the order given."""
        pairs = [self.client(k) for k in clients]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[list(clients)])])
        spans = [slice(*self.offsets[k : k + 2]) for k in clients]
        groups = {
            kind: np.concatenate([codes[span] for span in spans])
            for kind, codes in self.groups.items()
        }
        x, y = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
        return Split(x, y, offsets, groups)

    def held_in(self, dtype: torch.dtype, whole: bool) -> bool:
        """Tell whether it is held in a floating point type already."""
        x, y = self.x.dtype, self.y.dtype
        integers = whole and not x.is_floating_point
        return (integers or x == dtype) and (not y.is_floating_point or y == dtype)

    def on(self, device: torch.device) -> Split:
        """Return it with inputs and targets on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def to(self, dtype: torch.dtype, whole: bool) -> Split:
        """Return it in another floating point type; ``whole`` leaves integer inputs alone."""
        y = self.y.to(dtype) if self.y.is_floating_point() else self.y
        integers = whole and not self.x.is_floating_point()
        return replace(self, x=self.x if integers else self.x.to(dtype), y=y)


def room_for(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return memory for all examples of a split.

    It is numpy's, which asks the system for large pages where torch does not: rows are read in
    random order, and a small page would be looked up for each.
    """
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + LINE, dtype=np.uint8)
    start = -raw.ctypes.data % LINE
    return torch.from_numpy(raw[start : start + size]).view(dtype).view(tuple(shape))


def _aligned(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cpu":
        return tensor
    return tensor.clone() if tensor.data_ptr() % LINE else tensor
