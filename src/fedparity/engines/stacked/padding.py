"""Examples of several clients as one tensor, padded to the largest, and their shares in a mean."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedparity.data import Split
from fedparity.engines.engine import Ids


@lru_cache(maxsize=4)
def even_weights(clients: int, batch: int, dtype: torch.dtype) -> Tensor:
    """Return each example's share ``[m, B]`` in its client's mean, where nothing is padding."""
    return torch.full((clients, batch), 1 / batch, dtype=dtype)


def weights_of(shape: tuple[int, ...], mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return each example's share ``[m, B]`` in its client's mean; 0 where it is padding."""
    if mask is None:
        return even_weights(*shape, dtype)
    return mask / mask.sum(1, keepdim=True).clamp_min(1).to(dtype)


def padded(
    data: Split, clients: Ids, start: int, width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return examples ``start .. start + width`` of every client, padded, with the mask."""
    if len(clients) == 1 and start + width <= data.sizes[clients[0]]:
        first = int(data.offsets[clients[0]]) + start
        return data.x[None, first : first + width], data.y[None, first : first + width], None
    sizes, offsets = data.sizes[clients], data.offsets[clients]
    place = start + np.arange(width)
    inside = place < sizes[:, None]
    rows = torch.from_numpy(
        offsets[:, None] + np.minimum(place, np.maximum(sizes - 1, 0)[:, None])
    ).clamp_max(len(data) - 1)
    mask = None if inside.all() else torch.from_numpy(inside)
    flat = rows.flatten()
    return taken(data.x, flat, rows.shape), taken(data.y, flat, rows.shape), mask


def taken(
    values: Tensor, rows: Tensor, lead: tuple[int, ...], room: Tensor | None = None
) -> Tensor:
    """Return these rows in the shape ``[*lead, ...]``, in a quarter of the time of indexing."""
    return torch.index_select(values, 0, rows, out=room).view(*lead, *values.shape[1:])


def summed(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sums ``[m, ...]`` over each client's examples of ``[m, B, ...]``, padding apart.

    >>> summed(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]))
    tensor([1.])
    """
    if mask is not None:
        values = torch.where(mask.view(*mask.shape, *[1] * (values.dim() - 2)), values, 0.0)
    return values.sum(1)
