"""What a lane of ``m`` clients works on: padded examples, the batches of its steps, vectors.

The calling thread makes plans and views for all lanes; each lane's worker then takes its batches
from them. Nothing here writes to the data, or to a tensor that it is given but for ``room``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedparity.data import Split
from fedparity.engines.engine import Ids
from fedparity.engines.lane import Pieces
from fedparity.learning.layout import Layout
from fedparity.learning.solver import BatchPlan

CPU = torch.device("cpu")


@lru_cache(maxsize=4)
def even_weights(
    clients: int, batch: int, dtype: torch.dtype, device: torch.device = CPU
) -> Tensor:
    """Return each example's share ``[m, B]`` in its client's mean, where nothing is padding.

    It is kept for later calls: nobody may write to it.
    """
    return torch.full((clients, batch), 1 / batch, dtype=dtype, device=device)


def weights_of(
    shape: tuple[int, ...], mask: Tensor | None, dtype: torch.dtype, device: torch.device = CPU
) -> Tensor:
    """Return each example's share ``[m, B]`` in its client's mean; 0 where it is padding."""
    if mask is None:
        return even_weights(*shape, dtype, device)
    return mask / mask.sum(1, keepdim=True).clamp_min(1).to(dtype)


def padded(
    data: Split, clients: Ids, start: int, width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return examples ``start .. start + width`` of every client, ``[m, width, ...]``, padded.

    These are inputs, targets and the mask ``[m, width]``, which is None if nothing is padding. Of a
    single client they are views of the data, else copies.
    """
    if len(clients) == 1 and start + width <= data.sizes[clients[0]]:
        first = int(data.offsets[clients[0]]) + start
        return data.x[None, first : first + width], data.y[None, first : first + width], None
    rows, inside = places(data, clients, start, width)
    mask = None if inside.all() else torch.from_numpy(inside).to(data.x.device)
    flat = rows.flatten()
    return taken(data.x, flat, rows.shape), taken(data.y, flat, rows.shape), mask


def places(
    data: Split, clients: Ids, start: int, width: int
) -> tuple[Tensor, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Return the rows ``[m, width]`` of these examples, and which of them are no padding."""
    sizes, offsets = data.sizes[clients], data.offsets[clients]
    place = start + np.arange(width)
    rows = torch.from_numpy(
        offsets[:, None] + np.minimum(place, np.maximum(sizes - 1, 0)[:, None])
    ).clamp_max(len(data) - 1)
    return rows.to(data.x.device), place < sizes[:, None]


def taken(
    values: Tensor, rows: Tensor, lead: tuple[int, ...], room: Tensor | None = None
) -> Tensor:
    """Return a copy of these rows ``[n]`` in the shape ``[*lead, ...]``; it overwrites ``room``.

    This takes a quarter of the time of indexing.
    """
    return torch.index_select(values, 0, rows, out=room).view(*lead, *values.shape[1:])


def summed(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sums ``[m, ...]`` over each client's examples of ``[m, B, ...]``, padding apart.

    >>> summed(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]))
    tensor([1.])
    """
    if mask is not None:
        values = torch.where(mask.view(*mask.shape, *[1] * (values.dim() - 2)), values, 0.0)
    return values.sum(1)


class Group(NamedTuple):
    """Neighbouring clients of a plan, with the most steps and the widest batch among them."""

    who: slice
    steps: int
    width: int


class Batches(NamedTuple):
    """The batches of a group of ``m`` clients, as rows of the split that holds them all."""

    data: Split
    rows: tuple[Tensor, ...]
    """Of every step, the rows ``[m * B]``."""
    targets: tuple[Tensor, ...] | None
    """Of every step, the targets ``[m, B]``; None where they are larger than the plan itself."""
    mask: Tensor | None
    """``[m, steps, B]``; False where a row is padding, None if none is."""
    even: Tensor
    """Each example's share ``[m, B]`` in its client's mean, where nothing is padding."""
    expected: int | None = None
    """By what sums over a batch are divided; None: by the examples it has."""

    @staticmethod
    def by_group(
        data: Split,
        clients: Ids,
        plan: BatchPlan,
        groups: Sequence[Group],
        expected: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Iterator[Batches]:
        """Yield the planned batches of each group of these clients, with shares of a ``dtype``.

        By ``expected`` sums over a batch are divided; None: by the examples it has.
        """
        places = (plan.index + data.offsets[clients][:, None, None]).swapaxes(0, 1)
        rows = torch.from_numpy(places.copy()).to(data.x.device)
        targets = taken(data.y, rows.flatten(), rows.shape) if data.y.dim() == 1 else None
        full = bool(plan.mask.all())
        for who, steps, width in groups:
            if expected is not None:  # a lot is rarely as large as it may be
                width = max(1, int(plan.mask[who, :steps].sum(-1).max()))
            here = slice(steps), who, slice(width)
            mine, mask = rows[here], plan.mask[who, :steps, :width]
            yield Batches(
                data,
                mine.reshape(steps, -1).unbind(),
                None if targets is None else targets[here].unbind(),
                None if full or mask.all() else torch.from_numpy(mask.copy()).to(rows.device),
                even_weights(mine.shape[1], width, dtype, rows.device),
                expected,
            )

    @property
    def partial(self) -> bool:
        """Whether some batch is padded; one of a client that has done its steps is empty."""
        if self.mask is None:
            return False
        return bool((self.mask.any(-1) & ~self.mask.all(-1)).any())

    def room(self) -> Tensor:
        """Return a buffer ``[m * B, ...]`` for the inputs of a step."""
        return self.data.x.new_empty(len(self.rows[0]), *self.data.x.shape[1:])

    def places(self, step: int) -> Tensor:
        """Return the rows ``[m, B]`` of a step."""
        return self.rows[step].view(self.even.shape)

    def at(self, step: int, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs and targets ``[m, B, ...]`` and shares ``[m, B]`` of a step.

        The inputs overwrite ``room``, and are a view of it.
        """
        rows, lead, share = self.rows[step], self.even.shape, self.even
        inputs = taken(self.data.x, rows, lead, room)
        target = taken(self.data.y, rows, lead) if self.targets is None else self.targets[step]
        if self.expected is not None:
            whole = (
                torch.ones(lead, device=rows.device) if self.mask is None else self.mask[:, step]
            )
            share = whole.to(share.dtype) / self.expected
        elif self.mask is not None:
            share = weights_of(lead, self.mask[:, step], share.dtype)
        return inputs, target, share


class Slotted(NamedTuple):
    """Vectors ``[m, d]`` of a lane's clients, and views of them, ``[m, *shape]`` slot by slot."""

    flat: Tensor
    pieces: Pieces

    @staticmethod
    def of(layout: Layout, flat: Tensor) -> Slotted:
        """Return the vectors with their views."""
        return Slotted(flat, tuple(layout.views(flat)))

    def split(self, widths: list[int]) -> list[Slotted]:
        """Return views of the vectors of so many clients each, one group behind the other."""
        if len(widths) == 1:
            return [self]
        pieces = zip(*(piece.split_with_sizes(widths) for piece in self.pieces), strict=True)
        flat = self.flat.split_with_sizes(widths)
        return [Slotted(*both) for both in zip(flat, pieces, strict=True)]
