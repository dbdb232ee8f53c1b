"""Losses and other means over the examples of a cohort's clients, at the shared model.

The examples of all clients are read as one sequence, in blocks that all workers share: each worker
reads the data, sets and uses its own module, and writes to nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.data import Split
from fedparity.engines.engine import Ids, Setup
from fedparity.engines.evaluation import block_rows, losses_block
from fedparity.engines.facts import per_example
from fedparity.engines.judging import judged
from fedparity.learning.device import wide
from fedparity.method.facts import PerExample
from fedparity.method.messages import Down

T = TypeVar("T")

COHORT_BLOCK = 1 << 19
"""Input numbers of a block: small, so that a cohort's examples make a block for every worker."""
LOSSES = frozenset({"loss", "validation_loss"})


def poolable(setup: Setup, reads: frozenset[str]) -> bool:
    """Tell whether some of these facts are means over examples."""
    return bool(reads & LOSSES or per_example(setup, reads))


class AtModules(Protocol):
    """Computes a number of blocks on all workers, at modules of these parameters and buffers."""

    def __call__(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]: ...


def pooled_facts(
    setup: Setup, reads: frozenset[str], down: Down, clients: Ids, at_modules: AtModules
) -> dict[str, Tensor]:
    """Return the means over examples that parts read, ``[m, ...]`` each, of these clients."""
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
    if functions := per_example(setup, reads):
        found |= _means(setup, functions, down, clients, at_modules)
    return found


def _means(
    setup: Setup,
    functions: dict[str, PerExample],
    down: Down,
    clients: Ids,
    at_modules: AtModules,
) -> dict[str, Tensor]:
    """Return each client's mean of functions of losses, outputs and targets, ``[m, ...]``."""
    data, task = setup.federation.train, setup.task
    rows, owner = rows_of_clients(data, clients)
    width, device = block_rows(data.x, COHORT_BLOCK), down.x.device
    blocks = torch.split(rows, width)
    owners = torch.split(torch.from_numpy(owner).to(device), width)

    def one(block: int, module: nn.Module) -> dict[str, Tensor]:
        inputs, target = (examples(v, blocks[block]) for v in (data.x, data.y))
        with torch.inference_mode():
            output = module.eval()(inputs).contiguous()
            losses = task.losses(output, target)
            each = {name: function(losses, output, target) for name, function in functions.items()}
            return {name: summed(value, owners[block]) for name, value in each.items()}

    def summed(values: Tensor, owner: Tensor) -> Tensor:
        sums = torch.zeros(len(clients), *values.shape[1:], dtype=wide(device), device=device)
        return sums.index_add_(0, owner, values.to(sums.dtype))

    found = at_modules(len(blocks), one, down.x, down.buffers)
    sizes = torch.from_numpy(data.sizes[clients]).to(device)
    means = {}
    for name in functions:
        total = torch.stack([sums[name] for sums in found]).sum(0)
        means[name] = (total / sizes.view(-1, *[1] * (total.dim() - 1))).to(down.x.dtype)
    return means


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
