"""A lane of several clients whose full batches are read in place, without padding.

Padded to the largest, full batches of unlike sizes would be mostly padding, and large ones exceed a
cache. Here a block is examples of one client, ``[1, B, ...]``, a view of the split. The calling
thread hands the blocks to all workers, who only read parameters and data; it adds their gradients
in the order of the blocks, ``[m, *shape]`` a slot, and writes the step over that sum.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedparity.data import Split
from fedparity.engines.engine import Ids, Setup, fills_a_core
from fedparity.engines.evaluation import block_rows
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.lane import BySlot, Pieces, Rule, take_step
from fedparity.engines.stacked.lane import Stack, Work
from fedparity.engines.stacked.measuring import Block, Facts
from fedparity.method.hints import Affine
from fedparity.method.messages import Down
from fedparity.workers import Crew

CHAIN_BLOCK = 1 << 20
"""Input numbers of a block: the backward pass reads them again, which must be from cache."""
UNEVEN = 4.0
"""How much larger than the median the largest full batch may be before padding eats the gain."""
SMALL = 512
"""Examples up to which padding does not matter."""


def reads_in_place(setup: Setup) -> bool:
    """Tell whether full batches are better read in place than padded to a stack."""
    if setup.solver.batch is not None or Chain.of(setup) is None:
        return False
    if setup.algorithm.having("loss"):  # which may look at the whole batch
        return False
    return fills_a_core(setup) or uneven(setup.federation.train.sizes)


def uneven(sizes: Ids) -> bool:
    """Tell whether full batches of these sizes ``[m]`` would be mostly padding."""
    return bool(sizes.max() > max(SMALL, UNEVEN * np.median(sizes)))


class FullBatches(Stack):
    """A stack of ``m`` clients whose blocks all workers share; the module says who writes what."""

    def __init__(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        facts: Facts | None,
        chain: Chain,
        work: Work | None,
        crew: Crew[Setup],
    ) -> None:
        super().__init__(setup, down, clients, facts, chain, work)
        self.crew = crew

    def plain_step(self, step: int, rule: Rule, correction: Affine | BySlot) -> None:
        if isinstance(correction, BySlot):
            return super().plain_step(step, rule, correction)
        gradient, _ = self._gradient(self._slots, step, rule, correction.scale)
        keep = 1 - rule.lr * correction.pull
        self._slots = take_step(self._slots, gradient, rule.lr, keep, over_gradient=True)
        self._add_shift()

    def blocks(self, data: Split) -> list[Block]:
        width = block_rows(data.x, CHAIN_BLOCK) if len(data) else 1
        return [
            Block(slice(place, place + 1), start, min(width, size - start))
            for place, size in enumerate(data.sizes[self.clients].tolist())
            for start in range(0, size, width)
        ]

    def _gradient(
        self, leaves: Pieces, step: int, rule: Rule, scale: Tensor | float = 1.0
    ) -> tuple[Pieces, Tensor]:
        found = self.gradient_by_blocks(leaves, self._buffers, scale)
        return found, leaves[0].new_zeros(len(self.clients), 0)
