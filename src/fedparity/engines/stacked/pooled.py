"""The losses of a cohort at the shared model: one pass over the examples of all its clients.

It may go on beside training, and is waited for at the end.
"""

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
from fedparity.method.answer import Down
from fedparity.method.part import Fact
from fedparity.workers import Job

SHARE = 1 << 19
"""Input numbers of a block: a cohort has little, and every worker wants some."""

BESIDE = 1 << 21, 1 << 15
"""Input numbers and examples that a block may have in a pass beside training.

It is large, for at every operation its worker and the one that trains may wait for each other.
"""


class Begin(Protocol):
    """Begins work on a number of blocks, at modules of these parameters and buffers."""

    def __call__(
        self, count: int, one: Callable[[int, nn.Module], Tensor], x: Tensor, buffers: Tensor
    ) -> Job[Tensor]: ...


class Passes:
    """The passes for what parts read of these clients: begun when made, ended when called.

    ``beside`` tells that the clients train meanwhile.
    """

    def __init__(
        self,
        setup: Setup,
        reads: frozenset[Fact],
        down: Down,
        clients: Ids,
        at_modules: Begin,
        beside: bool = False,
    ) -> None:
        self._setup, self._down, self._clients = setup, down, clients
        self._at_modules, self._beside = at_modules, beside
        self._jobs: list[Job[Tensor]] = []
        self._found: dict[str, Tensor] = {}
        self._ends: dict[str, Callable[[], Tensor]] = {}
        if "loss" in reads:
            self._ends["loss"] = self._over("train", judge=bool(setup.algorithm.having("judge")))
        if "validation_loss" in reads:
            self._ends["validation_loss"] = self._validation()

    def __call__(self) -> dict[str, Tensor]:
        """Return the losses of every client."""
        if not self._found:
            self._found = {fact: end() for fact, end in self._ends.items()}
        return self._found

    def call_off(self) -> None:
        """Begin no other block."""
        for job in self._jobs:
            job.call_off()

    def _validation(self) -> Callable[[], Tensor]:
        """Go over validation examples, or over training ones where a client has none."""
        value = self._over("validation")
        absent = torch.from_numpy(self._setup.federation.validation.sizes[self._clients] == 0)
        if not absent.any():
            return value
        plain = self._over("train")
        return lambda: torch.where(absent, plain(), value())

    def _over(self, split: str, judge: bool = False) -> Callable[[], Tensor]:
        """Begin a pass over a split; what is returned ends it."""
        setup, clients = self._setup, self._clients
        data: Split = getattr(setup.federation, split)
        rows, owner = rows_of_clients(data, clients)
        blocks = torch.split(rows, self._block(data, len(rows))) if len(rows) else ()

        def one(block: int, module: nn.Module) -> Tensor:
            inputs, target = (examples(v, blocks[block]) for v in (data.x, data.y))
            if judge:
                return judged(setup, module, inputs, target, self._down)
            return losses_block(setup.task, module, inputs, target)

        job = self._at_modules(len(blocks), one, self._down.x, self._down.buffers)
        self._jobs.append(job)

        def end() -> Tensor:
            found = list(job.results())
            each = torch.cat(found).double().numpy() if found else np.zeros(0)
            sums = np.bincount(owner, weights=each, minlength=len(clients))
            with np.errstate(invalid="ignore", divide="ignore"):
                return torch.from_numpy(sums / data.sizes[clients]).to(self._down.x.dtype)

        return end

    def _block(self, data: Split, count: int) -> int:
        """Return how many of so many examples a block has."""
        rows = block_rows(data.x, SHARE)
        if not self._beside:
            return rows
        half = -(-count // 2)  # one at least for another worker, and one for who has trained
        return min(block_rows(data.x, *BESIDE), max(rows, half))


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
