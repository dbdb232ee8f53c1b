"""One track's steps by any solver, over vectors: what no lane can do in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedparity.method.messages import Named

if TYPE_CHECKING:
    from fedparity.engines.lane import Lane, Rule


class Steps:
    """One track's steps by any solver, over vectors ``y``, ``[d]`` or ``[m, d]``.

    Every step makes new tensors and writes to none, so that ``y`` may be kept.
    """

    def __init__(self, lane: Lane, start: Tensor, rule: Rule) -> None:
        self.lane, self.rule, self.y = lane, rule, start
        self.second = start[..., :0]
        self.carried: Named = {}
        self._slots = lane.solver.slots(start)

    def step(self, step: int, shared: Tensor | None = None) -> Tensor:
        """Take a step and return its gradient, ``[d]`` or ``[m, d]``, before a part changes it.

        ``shared`` are the parameters of the shared track before the same step, where this one goes
        side by side with it.
        """
        if self.rule.having("carry"):
            self._carry(step)
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

    def _carry(self, step: int) -> None:
        """Move what goes along with the steps; that of a client that has done its steps stays."""
        tree = {**self.rule.tree, "carried": self.carried}
        found = self.lane.lift(lambda tree, y: self.rule.carry(tree, y, step))(tree, self.y)
        running = self.lane.running(step)
        if step and running is not None:
            found = {
                part: {
                    name: torch.where(running.view(-1, *[1] * (v.dim() - 1)), v, before[name])
                    for name, v in found[part].items()
                }
                for part, before in self.carried.items()
            }
        self.carried = found
        self.rule = replace(self.rule, tree={**tree, "carried": found})
