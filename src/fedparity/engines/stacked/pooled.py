"""Losses and other means over the examples of a cohort's clients, at the shared model.

The examples of all clients are read as one sequence, in blocks that all workers share: each worker
reads the data, sets and uses its own module, and writes to nothing else. The calling thread adds
what they found, in the order of the blocks.
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
from fedparity.engines.facts import AtRows, per_example
from fedparity.engines.judging import judged
from fedparity.learning.device import wide
from fedparity.method.hints import looks_at_losses
from fedparity.method.messages import Down

T = TypeVar("T")

COHORT_BLOCK = 1 << 19
"""Input numbers of a block: small, so that a cohort's examples make a block for every worker."""
POOLED = frozenset({"loss", "validation_loss", "right"})


def poolable(setup: Setup, reads: frozenset[str]) -> bool:
    """Tell whether some of these facts are of single examples, or means over them."""
    return bool(reads & POOLED or per_example(setup, reads))


class AtModules(Protocol):
    """Computes a number of blocks on all workers, at modules of these parameters and buffers.

    ``x`` is ``[d]`` and ``buffers`` are ``[b]``.
    """

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
    own, right = per_example(setup, reads - {"accuracy"}), bool(reads & {"right", "accuracy"})
    if own or right:
        each = _each(setup, own, right, down, clients, at_modules)
        found |= {name: _mean(each[name], setup, clients) for name in own}
        if "accuracy" in reads:
            found["accuracy"] = _mean(each["right"], setup, clients)
        if "right" in reads:
            found["right"] = by_client(each["right"], setup, clients)
    return {name: value.to(down.x.dtype) for name, value in found.items()}


def _each(
    setup: Setup,
    own: dict[str, AtRows],
    right: bool,
    down: Down,
    clients: Ids,
    at_modules: AtModules,
) -> dict[str, Tensor]:
    """Return functions of every example of the clients, in order, and if asked whether it is right.

    Losses are measured only for the functions, which are given outputs that lie row by row unless
    all look at losses alone.
    """
    data, task = setup.federation.train, setup.task
    rows, _ = rows_of_clients(data, clients)
    blocks = torch.split(rows, block_rows(data.x, COHORT_BLOCK))
    lies = all(map(looks_at_losses, own.values()))

    def one(block: int, module: nn.Module) -> dict[str, Tensor]:
        inputs, target = (examples(v, blocks[block]) for v in (data.x, data.y))
        with torch.inference_mode():
            output = module.eval()(inputs)
            found = {"right": task.metrics(output, target)["accuracy"]} if right else {}
            if own:
                losses = task.losses(output, target)
                output = output if lies else output.contiguous()
                seen = losses, output, target, blocks[block]
                found |= {name: f(*seen) for name, f in own.items()}
            return found

    found = at_modules(len(blocks), one, down.x, down.buffers)
    return {name: torch.cat([block[name] for block in found]) for name in found[0]}


def _mean(values: Tensor, setup: Setup, clients: Ids) -> Tensor:
    """Return each client's mean of its examples' values, ``[m, ...]``."""
    sizes = torch.from_numpy(setup.federation.train.sizes[clients]).to(values.device)
    return torch.segment_reduce(values.to(wide(values.device)), "mean", lengths=sizes)


def by_client(values: Tensor, setup: Setup, clients: Ids) -> Tensor:
    """Return the examples' values in a row for each client, ``[m, longest]``, 0 behind its last."""
    sizes, longest = setup.federation.train.sizes[clients], setup.most_examples
    if (sizes == longest).all():
        return values.view(len(clients), longest)
    found = values.new_zeros(len(clients), longest)
    there = torch.from_numpy(np.arange(longest) < sizes[:, None]).to(values.device)
    found[there] = values
    return found


def _over(
    setup: Setup,
    split: str,
    down: Down,
    clients: Ids,
    at_modules: AtModules,
    judge: bool = False,
) -> Tensor:
    """Return each client's mean loss over a split, ``[m]``, as the algorithm judges it if asked."""
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
    """Return the values ``[B, ...]`` of ascending rows; a view where they lie side by side."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return values[first : last + 1]
    return values.index_select(0, rows.to(values.device))


def rows_of_clients(data: Split, clients: Ids) -> tuple[Tensor, Ids]:
    """Return the rows ``[N]`` of the given clients and, for each, its place in ``clients``."""
    sizes = data.sizes[clients]
    owner = np.repeat(np.arange(len(clients)), sizes)
    first = np.repeat(data.offsets[clients] - np.cumsum(sizes) + sizes, sizes)
    return torch.from_numpy(first + np.arange(len(owner))), owner
