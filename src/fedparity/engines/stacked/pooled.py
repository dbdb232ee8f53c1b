"""The losses of a cohort at the shared model: one pass over the examples of all its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.data import Split
from fedparity.engines.engine import Ids, Setup
from fedparity.engines.evaluation import block_rows, losses_block
from fedparity.engines.judging import judged
from fedparity.method.messages import Down

COHORT_BLOCK = 1 << 19
"""Input numbers of a block: a cohort has little, and every worker wants some."""
POOLED = frozenset({"loss", "validation_loss"})
"""Facts that are measured so."""


class AtModules(Protocol):
    """Computes a number of blocks on all workers, at modules of these parameters and buffers."""

    def __call__(
        self, count: int, one: Callable[[int, nn.Module], Tensor], x: Tensor, buffers: Tensor
    ) -> list[Tensor]: ...


def pooled_losses(
    setup: Setup, reads: frozenset[str], down: Down, clients: Ids, at_modules: AtModules
) -> dict[str, Tensor]:
    """Return those of the losses that parts read, ``[m]`` each, of these clients."""
    found: dict[str, Tensor] = {}
    if "loss" in reads:
        judge = bool(setup.algorithm.having("judge"))
        found["loss"] = _over(setup, "train", down, clients, at_modules, judge)
    if "validation_loss" in reads:
        value = _over(setup, "validation", down, clients, at_modules)
        absent = torch.from_numpy(setup.federation.validation.sizes[clients] == 0)
        absent = absent.to(value.device)
        if absent.any():  # a client without validation examples has its training loss
            value = torch.where(absent, _over(setup, "train", down, clients, at_modules), value)
        found["validation_loss"] = value
    return found


def _over(
    setup: Setup,
    split: str,
    down: Down,
    clients: Ids,
    at_modules: AtModules,
    judge: bool = False,
) -> Tensor:
    """Return each client's mean loss over a split, as the algorithm judges it if asked to."""
    data: Split = getattr(setup.federation, split)
    rows, owner = rows_of_clients(data, clients)
    blocks = torch.split(rows, block_rows(data.x, COHORT_BLOCK)) if len(rows) else ()

    def one(block: int, module: nn.Module) -> Tensor:
        inputs, target = (examples(v, blocks[block]) for v in (data.x, data.y))
        if judge:
            return judged(setup, module, inputs, target, down)
        return losses_block(setup.task, module, inputs, target)

    found = at_modules(len(blocks), one, down.x, down.buffers)
    each = torch.cat(found).cpu().double().numpy() if found else np.zeros(0)
    sums = np.bincount(owner, weights=each, minlength=len(clients))
    with np.errstate(invalid="ignore", divide="ignore"):
        return torch.from_numpy(sums / data.sizes[clients]).to(down.x.dtype).to(down.x.device)


def examples(values: Tensor, rows: Tensor) -> Tensor:
    """Return these rows, ascending, as a view where they lie side by side."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return values[first : last + 1]
    return values.index_select(0, rows.to(values.device))


def rows_of_clients(data: Split, clients: Ids) -> tuple[Tensor, Ids]:
    """Return the rows of the given clients and, for each, its place in ``clients``."""
    sizes = data.sizes[clients]
    owner = np.repeat(np.arange(len(clients)), sizes)
    first = np.repeat(data.offsets[clients] - np.cumsum(sizes) + sizes, sizes)
    return torch.from_numpy(first + np.arange(len(owner))), owner
