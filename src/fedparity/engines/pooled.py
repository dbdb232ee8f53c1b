"""The losses of a cohort at the shared model: one pass over the examples of all its clients.

It may go on beside training: what begins it returns a function that ends it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.core.client import Down, Facts
from fedparity.core.part import Fact
from fedparity.data import Split
from fedparity.engines.evaluation import block_rows, losses_block
from fedparity.engines.judging import judged
from fedparity.engines.setup import Ids, Setup

SHARE = 1 << 19
"""Input numbers of a block: a cohort has little, and every worker wants some."""

BESIDE = 1 << 21, 1 << 15
"""Input numbers and examples that a block may have in a pass beside training.

It is large, for at every operation its worker and the one that trains may wait for each other.
"""


class Begin(Protocol):
    """Begins work on a number of blocks at modules of these parameters and buffers."""

    def __call__(
        self, count: int, one: Callable[[int, nn.Module], Tensor], x: Tensor, buffers: Tensor
    ) -> Callable[[], list[Tensor]]: ...


def begin(
    setup: Setup, reads: frozenset[Fact], down: Down, clients: Ids, at_modules: Begin, beside: bool
) -> Facts:
    """Begin the passes for what is read of these clients, beside training or not."""

    def over(split: str, judge: bool = False) -> Callable[[], Tensor]:
        data: Split = getattr(setup.federation, split)
        rows, owner = rows_of_clients(data, clients)
        blocks = torch.split(rows, _block(data, len(rows), beside)) if len(rows) else ()

        def one(block: int, module: nn.Module) -> Tensor:
            inputs, target = (examples(v, blocks[block]) for v in (data.x, data.y))
            if judge:
                return judged(setup, module, inputs, target)
            return losses_block(setup.task, module, inputs, target)

        under_way = at_modules(len(blocks), one, down.x, down.buffers)

        def end() -> Tensor:
            found = under_way()
            each = torch.cat(found).double().numpy() if found else np.zeros(0)
            sums = np.bincount(owner, weights=each, minlength=len(clients))
            with np.errstate(invalid="ignore", divide="ignore"):
                return torch.from_numpy(sums / data.sizes[clients]).to(down.x.dtype)

        return end

    passes: dict[str, Callable[[], Tensor]] = {}
    if "loss" in reads:
        passes["loss"] = over("train", judge=bool(setup.algorithm.having("judge")))
    if "validation_loss" in reads:
        passes["validation_loss"] = value = over("validation")
        absent = torch.from_numpy(setup.federation.validation.sizes[clients] == 0)
        if absent.any():
            plain = over("train")
            passes["validation_loss"] = lambda: torch.where(absent, plain(), value())
    return functools.cache(lambda: {fact: end() for fact, end in passes.items()})


def _block(data: Split, count: int, beside: bool) -> int:
    """Return how many of so many examples a block has."""
    rows = block_rows(data.x, SHARE)
    return min(block_rows(data.x, *BESIDE), max(rows, -(-count // 2))) if beside else rows


def examples(values: Tensor, rows: Tensor) -> Tensor:
    """Return these rows, ascending, as a view where they lie side by side."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return values[first : last + 1]
    return values.index_select(0, rows)


def rows_of_clients(data: Split, clients: Ids) -> tuple[Tensor, Ids]:
    """Return the rows of the given clients and, for each, its place in ``clients``."""
    sizes = data.sizes[clients]
    owner = np.repeat(np.arange(len(clients)), sizes)
    first = np.repeat(data.offsets[clients] - np.cumsum(sizes) + sizes, sizes)
    return torch.from_numpy(first + np.arange(len(owner))), owner
