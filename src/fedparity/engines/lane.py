"""The local loop: the only one there is, over what each kind of lane computes.

A lane stands at parameters of its own, which plain steps change where they lie. Steps of another
rule, or with corrections that the lane cannot fuse into its own step, go over one vector a client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedparity.engines.engine import Setup
from fedparity.learning.layout import Layout
from fedparity.learning.solver import Solver
from fedparity.method.algorithm import Algorithm
from fedparity.method.client import SHARED, Client
from fedparity.method.hints import Affine
from fedparity.method.messages import SERVER, Down
from fedparity.method.part import Part

Pieces = tuple[Tensor, ...]
"""One tensor a slot of the layout."""


def gradient_of(
    losses: Tensor, parameters: Pieces, weights: Tensor | None = None, retain_graph: bool = False
) -> Pieces:
    """Return the gradient of the weighted sum of losses; zeros for parameters it does not reach.

    ``weights`` has the shape of ``losses``; without it ``losses`` is one number.
    """
    return torch.autograd.grad(
        losses, parameters, weights, retain_graph=retain_graph, materialize_grads=True
    )


@torch.no_grad()
def take_step(
    parameters: Pieces,
    gradient: Pieces,
    lr: float,
    keep: float = 1.0,
    over_gradient: bool = False,
) -> Pieces:
    """Take the step ``keep * y - lr * gradient`` and return where it leads.

    The result is written over the parameters, or over the gradient, which must then be the
    caller's own.
    """
    if not over_gradient:
        if keep != 1.0:
            torch._foreach_mul_(parameters, keep)
        torch._foreach_add_(parameters, gradient, alpha=-lr)
        return parameters
    for before, found in zip(parameters, gradient, strict=True):
        if keep == 1.0:
            torch.sub(before, found, alpha=lr, out=found)
        else:
            found.mul_(-lr).add_(before, alpha=keep)
    return gradient


Tree = Mapping[str, Any]
"""The tensors of one client, or of a stack, by what they are: each, state, facts, points, n, ..."""
Batch = Mapping[str, Any]
"""In ``loss``: inputs, share, predict and augment of :class:`~fedparity.method.client.Client`."""


@dataclass(frozen=True)
class Rule:
    """The steps of one track.

    ``acting`` are the parts whose hooks act on this track, by hook; ``wants`` are the facts of the
    steps that are asked for.
    """

    acting: Mapping[str, list[Part]]
    layout: Layout
    down: Down
    progress: float
    tree: Tree
    wants: frozenset[str] = frozenset()
    track: str = SHARED
    corrects: bool = True
    """Whether parts change the gradient."""

    @property
    def lr(self) -> float:
        return self.down.lr

    def having(self, hook: str) -> list[Part]:
        """Return the parts of this track that use a hook, in order."""
        if hook == "grad" and not self.corrects:
            return []
        return self.acting.get(hook, [])

    def view(self, part: Part, hook: str, tree: Tree, **more: object) -> Client:
        """Return what a part sees of the client in ``tree``."""
        mine = f"{part.name}/"
        track = self.track.removeprefix(mine) if self.track.startswith(mine) else self.track
        purpose = f"{part.name}.{hook}" + ("" if self.track == SHARED else f"@{self.track}")
        down = self.down
        if hook == "seal":  # two replies of a round with the same noise would tell their difference
            purpose += f"@{down.phase}" + (f".{down.search}" if down.search else "")
        return Client(
            down.lr,
            down.round,
            self.layout,
            x=down.x,
            anchor=tree.get("anchor", down.x),
            track=track,
            down={**down.shared.get(part.name, {}), **tree["each"].get(part.name, {})},
            state=tree["state"].get(part.name, {}),
            points=tree.get("points", {}).get(part.name, {}),
            ends=tree.get("ends", {}).get(part.name, {}),
            n=tree["n"],
            steps=tree["steps"],
            progress=self.progress,
            seed=tree["seed"],
            secret=tree.get("secret"),
            purpose=purpose,
            _facts={**tree["facts"], **tree["each"].get(SERVER, {})},
            **more,
        )

    def losses(
        self, tree: Tree, losses: Tensor, output: Tensor, target: Tensor, batch: Batch, step: int
    ) -> Tensor:
        """Return a batch's losses ``[B]`` as the parts want them."""
        for part in self.having("loss"):
            c = self.view(part, "loss", tree, step=step, **batch)
            losses = part.loss(losses, output, target, c)
        return losses

    def second(self, tree: Tree, losses: Tensor, step: int) -> Tensor:
        """Return the losses ``[B]`` whose gradient is asked for besides."""
        (part,) = self.having("second")
        return part.second(losses, self.view(part, "second", tree, step=step))

    def examples(self, tree: Tree, grads: Tensor, step: int) -> Tensor:
        """Return the gradients of examples ``[B, d]`` as the part that asks for them wants them."""
        (part,) = self.having("examples")
        return part.examples(grads, self.view(part, "examples", tree, step=step))

    def gradient(self, tree: Tree, g: Tensor, second: Tensor, y: Tensor, step: int) -> Tensor:
        """Return the gradient ``[d]`` as the parts correct it."""
        for part in self.having("grad"):
            c = self.view(part, "grad", tree, second=second, step=step)
            g = part.grad(g, y, c)
        return g

    def point(self, tree: Tree, y: Tensor, shared: Tensor, step: int) -> Tensor:
        """Return where the gradient of a step of a part's own track is taken."""
        for part in self.having("look"):
            y = part.look(y, shared, self.view(part, "look", tree, step=step))
        return y


class Beside(NamedTuple):
    """A track that goes side by side with the shared one."""

    start: Tensor
    rule: Rule


class End(NamedTuple):
    """Where local training has led."""

    delta: Tensor
    """How far, ``[d]`` or ``[m, d]``; empty of a track that is not the shared one."""
    parameters: Callable[[], Tensor]
    """Where to; made when somebody asks, for it is as large as the update. Until then the lane must
    not descend again."""
    buffers: Tensor
    met: dict[str, Tensor]
    """The facts of the steps that the rule wants."""
    beside: Sequence[Tensor] = ()
    """Where the tracks that went side by side with it have led, ``[d]`` or ``[m, d]`` each."""


GRADIENTS = frozenset({"first_grad", "last_second"})
"""Facts of the steps that fused steps, which store no gradient, do not meet."""
IDENTITY = Affine()


class BySlot(NamedTuple):
    """The correction of a gradient that is there slot by slot."""

    change: Callable[[Pieces], Pieces]
    """``[m, *shape]`` each, which are the caller's own, to the same."""


class Lane(ABC):
    """One client, or a stack of clients, ready to compute; runs on the worker that has it.

    The shapes are of one client; a stack has one more leading dimension ``m``.
    """

    setup: Setup
    solver: Solver
    layout: Layout
    algorithm: Algorithm
    n: Tensor
    """Training examples, ``[]`` or ``[m]``."""
    steps: Tensor
    """Local steps of this round, ``[]`` or ``[m]``."""
    longest: int
    """Local steps of the client that takes most."""
    progress: float
    """Share of the run's rounds that is done."""

    @property
    @abstractmethod
    def seed(self) -> Tensor:
        """Each client's seed of the round, ``[]`` or ``[m]``."""

    @abstractmethod
    def spread(self, x: Tensor) -> Tensor:
        """Return ``x [d]`` for every client, ``[d]`` or ``[m, d]``; nobody may write to it."""

    @abstractmethod
    def measure(self, y: Tensor, buffers: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        """Measure facts at the parameters ``y``, ``[d]`` or ``[m, d]``, of each client."""

    def descend(
        self,
        start: Tensor,
        buffers: Tensor,
        rule: Rule,
        steps: int | None = None,
        beside: Sequence[Beside] = (),
    ) -> End:
        """Take local steps from ``start``, ``[d]`` or ``[m, d]``, which is not written to.

        The tracks ``beside`` take theirs step by step with it.
        """
        trains = self.setup.algorithm.trains
        count = (self.longest if trains else 0) if steps is None else steps
        self.begin(start, buffers)
        correction = self._plain(rule) if count and not beside else None
        if correction is None:
            return self._general(start, rule, count, beside)
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

    def _general(self, start: Tensor, rule: Rule, count: int, beside: Sequence[Beside]) -> End:
        """Take steps of any solver, corrected by the parts' ``grad``."""
        walk, others = Walk(self, start, rule), [Walk(self, *one) for one in beside]
        met = {"first": start}
        for step in range(count):
            for other in others:
                other.step(step, walk.y)
            g = walk.step(step)
            if step == 0:
                met |= {"first_grad": g, "first": walk.y}
        met["last_second"] = walk.second
        if not count and "first_grad" in rule.wants:
            met["first_grad"] = torch.zeros_like(start)
        delta = walk.y - start if rule.track == SHARED else start[..., :0]
        wanted = {name: value for name, value in met.items() if name in rule.wants}
        return End(delta, lambda: walk.y, self.end(), wanted, [other.y for other in others])

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


class Walk:
    """One track's way through steps of any solver, over one vector a client."""

    def __init__(self, lane: Lane, start: Tensor, rule: Rule) -> None:
        self.lane, self.rule, self.y = lane, rule, start
        self.second = start[..., :0]
        self._slots = lane.solver.slots(start)

    def step(self, step: int, shared: Tensor | None = None) -> Tensor:
        """Take a step and return its gradient, before any part has changed it.

        ``shared`` is where the track stands that this one goes side by side with, if any.
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
