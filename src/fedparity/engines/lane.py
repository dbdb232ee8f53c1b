"""The local loop: the only one there is, over what each kind of lane computes.

A lane stands at parameters of its own, which plain steps change where they lie. Steps of another
rule, or with corrections that the lane cannot fuse into its own step, go over one vector a client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedparity.engines.engine import Setup
from fedparity.engines.kernels.gradients import Pieces
from fedparity.learning.solver import Solver
from fedparity.method.answer import End
from fedparity.method.client import SHARED
from fedparity.method.hints import Affine
from fedparity.method.rule import Rule

GRADIENTS = frozenset({"first_grad", "last_second"})
"""Facts of the steps that fused steps, which store no gradient, do not meet."""
IDENTITY = Affine()


class BySlot(NamedTuple):
    """The correction of a gradient that is there slot by slot."""

    change: Callable[[Pieces], Pieces]
    """``[m, *shape]`` each, which are the caller's own, to the same."""


class LocalLoop(ABC):
    """The verb ``descend`` of a lane; runs on the worker that has the lane."""

    setup: Setup
    solver: Solver
    longest: int
    """Local steps of the client that takes most."""

    def descend(self, start: Tensor, buffers: Tensor, rule: Rule, steps: int | None = None) -> End:
        """Take local steps from ``start``, ``[d]`` or ``[m, d]``, which is not written to."""
        trains = self.setup.algorithm.trains
        count = (self.longest if trains else 0) if steps is None else steps
        self.begin(start, buffers)
        correction = self._plain(rule) if count else None
        if correction is None:
            return self._general(start, rule, count)
        met: dict[str, Tensor] = {}
        for step in range(count):
            self.plain_step(step, rule, correction)
            if step == 0 and "first" in rule.wants:
                met["first"] = self.stand()
        if "first_grad" in rule.wants:
            met["first_grad"] = self.first_gradient()
        delta = self.update() if rule.track == SHARED else start[..., :0]
        return End(delta, self.stand, self.end(), met)

    def _plain(self, rule: Rule) -> Affine | BySlot | None:
        """Return the correction that plain steps make, or None if they cannot make this one."""
        if not self.solver.plain or "last_second" in rule.wants:
            return None
        correction = self.fused(rule)
        stores = isinstance(correction, BySlot)
        return correction if stores or not rule.wants & GRADIENTS else None

    def _general(self, start: Tensor, rule: Rule, count: int) -> End:
        """Take steps of any solver, corrected by the parts' ``grad``."""
        solver, correcting = self.solver, bool(rule.having("grad"))
        y, slots, second = start, solver.slots(start), start[..., :0]
        met = {"first": start}
        for step in range(count):
            g, found = self.gradient(y, step, rule)
            if step == 0 and "first_grad" in rule.wants:
                met["first_grad"] = g
            if correcting:
                g = self.corrected(rule, g, found, y, step)
            moved, after = solver.update(y, g, slots, rule.lr, step)
            running = self.running(step)
            if running is None:
                y, slots, second = moved, after, found
            else:
                second = torch.where(running, found, second if step else found)
                y = torch.where(running, moved, y)
                slots = tuple(torch.where(running, a, b) for a, b in zip(after, slots, strict=True))
            if step == 0:
                met["first"] = y
        met["last_second"] = second
        if not count and "first_grad" in rule.wants:
            met["first_grad"] = torch.zeros_like(start)
        delta = y - start if rule.track == SHARED else start[..., :0]
        wanted = {name: value for name, value in met.items() if name in rule.wants}
        return End(delta, lambda: y, self.end(), wanted)

    def corrected(self, rule: Rule, g: Tensor, second: Tensor, y: Tensor, step: int) -> Tensor:
        """Return the gradient as the parts correct it."""
        lifted = self.lift(lambda tree, g, second, y: rule.gradient(tree, g, second, y, step))
        found: Tensor = lifted(rule.tree, g, second, y)
        return found

    @abstractmethod
    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of one client's tensors as a function of the lane's."""

    @abstractmethod
    def begin(self, y: Tensor, buffers: Tensor) -> None:
        """Stand at these parameters and buffers, which stay as they are."""

    @abstractmethod
    def fused(self, rule: Rule) -> Affine | BySlot | None:
        """Return the corrections of a rule as the one that plain steps make, or None."""

    @abstractmethod
    def plain_step(self, step: int, rule: Rule, correction: Affine | BySlot) -> None:
        """Take the step ``y - lr * (scale * g + pull * y + shift)`` from where the lane stands.

        Or ``y - lr * change(g)``. A client that has done its steps stays.
        """

    def first_gradient(self) -> Tensor:
        """Return the gradient of the first plain step, if it was corrected slot by slot."""
        raise NotImplementedError

    @abstractmethod
    def stand(self) -> Tensor:
        """Return where the lane stands after plain steps, a copy."""

    @abstractmethod
    def update(self) -> Tensor:
        """Return how far plain steps have led from where they began."""

    @abstractmethod
    def gradient(self, y: Tensor, step: int, rule: Rule) -> tuple[Tensor, Tensor]:
        """Return the batch gradient at ``y`` and that of ``second`` (empty if there is none)."""

    @abstractmethod
    def running(self, step: int) -> Tensor | None:
        """Return which clients still train at ``step``, ``[m, 1]``; None if all do."""

    @abstractmethod
    def end(self) -> Tensor:
        """Return the buffers after training."""
