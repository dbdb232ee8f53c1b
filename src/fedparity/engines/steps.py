"""One track's steps by any solver, over vectors: what no lane can do in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedparity.engines.lane import Lane, Rule


class Steps:
    """One track's steps by any solver, over vectors ``y``, ``[d]`` or ``[m, d]``.

    Every step makes new tensors and writes to none, so that ``y`` may be kept.
    """

    def __init__(self, lane: Lane, start: Tensor, rule: Rule) -> None:
        self.lane, self.rule, self.y = lane, rule, start
        self.second = start[..., :0]
        self._slots = lane.solver.slots(start)

    def step(self, step: int, shared: Tensor | None = None) -> Tensor:
        """Take a step and return its gradient, ``[d]`` or ``[m, d]``, before a part changes it.

        ``shared`` are the parameters of the shared track before the same step, where this one goes
        side by side with it.
        """
        lane, rule, y = self.lane, self.rule, self.y
        point = y
        if shared is not None:
            lifted = lane.lift(lambda tree, y, shared: rule.point(tree, y, shared, step))
            point = lifted(rule.tree, y, shared)
        g, found = lane.gradient(point, step, rule)
        corrected = lane.corrected(rule, g, found, y, step) if rule.having("grad") else g
        moved, after = lane.solver.update(y, corrected, self._slots, rule.lr, step)
        running = lane.running(step)
        if running is None:
            self.y, self._slots, self.second = moved, after, found
        else:
            self.second = torch.where(running, found, self.second if step else found)
            self.y = torch.where(running, moved, y)
            kept = zip(after, self._slots, strict=True)
            self._slots = tuple(torch.where(running, a, b) for a, b in kept)
        return g
