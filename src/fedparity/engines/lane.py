"""The local loop: the only one there is, over what each kind of lane computes.

A lane keeps parameters of its own, slot by slot of the layout, and *plain* steps overwrite them in
place. Steps of another solver, or with corrections that a lane cannot make part of its own step, go
over vectors ``[d]``, of a stack ``[m, d]``, and make a new one at every step (:class:`Steps`).

A lane belongs to one worker, on whose thread its methods are called. Only the blocks of a full
batch may be handed to other workers, each of which writes to its own copy of the model alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedparity.engines.engine import Setup
from fedparity.engines.steps import Steps
from fedparity.learning.layout import Layout
from fedparity.learning.solver import Solver
from fedparity.method.algorithm import Algorithm
from fedparity.method.client import SHARED, Client
from fedparity.method.hints import Affine
from fedparity.method.messages import SERVER, Down, Named
from fedparity.method.part import Part

Pieces = tuple[Tensor, ...]
"""One tensor a slot of the layout."""


def gradient_of(
    losses: Tensor, parameters: Pieces, weights: Tensor | None = None, retain_graph: bool = False
) -> Pieces:
    """Return the gradient of the weighted sum of losses, a new tensor for each parameter.

    It is zero for a parameter that the losses do not depend on. ``weights`` has the shape of
    ``losses``; without it ``losses`` is one number. The recorded graph is freed, unless
    ``retain_graph``.
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
    """Return ``keep * y - lr * gradient``, slot by slot.

    The result overwrites the parameters or, with ``over_gradient``, the gradient, of which the
    caller must then be the only user.
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
"""What is known of a client, ``[...]``, or of a stack, ``[m, ...]``: each, state, facts, n, ..."""
Batch = Mapping[str, Any]
"""What ``loss`` sees of a batch: the inputs, share, predict and augment of its ``Client``."""


@dataclass(frozen=True)
class Rule:
    """What the steps of one track are made of: the parts' hooks, and what these see.

    The hooks are called with the tensors of one client, which they do not write to; a stack lifts
    them (:meth:`Lane.lift`).

    Parameters
    ----------
    acting
        The parts whose hooks act on this track, by hook.
    layout
        Where the layers are in the vector ``[d]``.
    down
        The message that the lane answers.
    progress
        Share of the run's rounds that is done.
    tree
        What is known of the lane's clients.
    wants
        The facts of the steps that are asked for.
    track
        The name of the track.
    corrects
        Whether parts change the gradient.
    """

    acting: Mapping[str, list[Part]]
    layout: Layout
    down: Down
    progress: float
    tree: Tree
    wants: frozenset[str] = frozenset()
    track: str = SHARED
    corrects: bool = True

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
            carried=tree.get("carried", {}).get(part.name, {}),
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

    def carry(self, tree: Tree, y: Tensor, step: int) -> Named:
        """Return what goes along with the steps of this track, from where it stands, ``[d]``."""
        carrying = self.having("carry")
        views = [self.view(part, "carry", tree, step=step) for part in carrying]
        return {p.name: dict(p.carry(y, c)) for p, c in zip(carrying, views, strict=True)}

    def point(self, tree: Tree, y: Tensor, shared: Tensor, step: int) -> Tensor:
        """Return where ``[d]`` a step of a part's own track takes its gradient, from ``y [d]``."""
        for part in self.having("look"):
            y = part.look(y, shared, self.view(part, "look", tree, step=step))
        return y


class Beside(NamedTuple):
    """A track that takes its steps side by side with the shared one, from ``start``."""

    start: Tensor
    rule: Rule


class End(NamedTuple):
    """What a lane has after its local steps."""

    delta: Tensor
    """The update, ``[d]`` or ``[m, d]``; empty of a track that is not the shared one."""
    parameters: Callable[[], Tensor]
    """Returns the parameters after the last step, ``[d]`` or ``[m, d]``. It makes a copy as large
    as the update, so call it only where they are needed, and before the lane descends again."""
    buffers: Tensor
    """``[b]`` or ``[m, b]``."""
    met: dict[str, Tensor]
    """The facts of the steps that the rule wants."""
    beside: Sequence[Tensor] = ()
    """The last parameters of the tracks side by side with it, ``[d]`` or ``[m, d]`` each."""
    carried: Named | None = None
    """What went along with its steps, by part, if anything did."""


GRADIENTS = frozenset({"first_grad", "last_second"})
"""Facts that need a stored gradient, which plain steps do not always store."""
IDENTITY = Affine()


class BySlot(NamedTuple):
    """A correction of the gradient that is made slot by slot."""

    change: Callable[[Pieces], Pieces]
    """From a gradient ``[m, *shape]`` a slot to another; it may overwrite the one it is given."""


class Lane(ABC):
    """One client, or a stack of ``m`` clients, ready to compute.

    It runs on the thread of the worker that made it. It overwrites that worker's model and its own
    parameters, and nothing that it is given. Shapes are of one client; those of a stack have one
    more leading dimension ``m``.
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
        """Return ``x [d]`` for every client, ``[d]`` or ``[m, d]``: a view, never written to."""

    @abstractmethod
    def measure(self, y: Tensor, buffers: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        """Measure facts of each client at the parameters ``y``, ``[d]`` or ``[m, d]``, and buffers.

        Overwrites the worker's model or puts it into eval mode; a ``descend`` begins anew.
        """

    def descend(
        self,
        start: Tensor,
        buffers: Tensor,
        rule: Rule,
        steps: int | None = None,
        beside: Sequence[Beside] = (),
    ) -> End:
        """Take local steps from ``start``, ``[d]`` or ``[m, d]``, and ``buffers``.

        Neither is written to. Without ``steps`` each client takes those of the round. The tracks
        ``beside`` take theirs step by step with it.
        """
        trains = self.setup.algorithm.trains
        count = (self.longest if trains else 0) if steps is None else steps
        self.begin(start, buffers)
        alone = not (beside or rule.having("carry"))
        correction = self._plain(rule) if count and alone else None
        if correction is None:
            return self._general(start, rule, count, beside)
        met: dict[str, Tensor] = {}
        for step in range(count):
            self.plain_step(step, rule, correction)
            if step == 0 and "first" in rule.wants:
                met["first"] = self.read()
        if "first_grad" in rule.wants:
            met["first_grad"] = self.first_gradient()
        delta = self.update() if rule.track == SHARED else start[..., :0]
        return End(delta, self.read, self.end(), met)

    def _plain(self, rule: Rule) -> Affine | BySlot | None:
        """Return the rule's correction as plain steps make it, or None if they cannot."""
        if not self.solver.plain or "last_second" in rule.wants:
            return None
        correction = self.fused(rule)
        stores = isinstance(correction, BySlot)
        return correction if stores or not rule.wants & GRADIENTS else None

    def _general(self, start: Tensor, rule: Rule, count: int, beside: Sequence[Beside]) -> End:
        """Take steps of any solver over vectors, corrected by the parts' ``grad``."""
        track, others = Steps(self, start, rule), [Steps(self, *one) for one in beside]
        met = {"first": start}
        for step in range(count):
            for other in others:
                other.step(step, track.y)
            g = track.step(step)
            if step == 0:
                met |= {"first_grad": g, "first": track.y}
        met["last_second"] = track.second
        if not count and "first_grad" in rule.wants:
            met["first_grad"] = torch.zeros_like(start)
        delta = track.y - start if rule.track == SHARED else start[..., :0]
        wanted = {name: value for name, value in met.items() if name in rule.wants}
        after = [other.y for other in others]
        return End(delta, lambda: track.y, self.end(), wanted, after, track.carried)

    def corrected(self, rule: Rule, g: Tensor, second: Tensor, y: Tensor, step: int) -> Tensor:
        """Return the gradient ``[d]`` or ``[m, d]`` as the parts correct it."""
        lifted = self.lift(lambda tree, g, second, y: rule.gradient(tree, g, second, y, step))
        found: Tensor = lifted(rule.tree, g, second, y)
        return found

    @abstractmethod
    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one client's tensors as one of the lane's, ``[m, ...]``."""

    @abstractmethod
    def begin(self, y: Tensor, buffers: Tensor) -> None:
        """Set the lane's parameters and buffers to these; they are copied before a step writes."""

    @abstractmethod
    def fused(self, rule: Rule) -> Affine | BySlot | None:
        """Return the corrections of a rule as one that plain steps can make, or None."""

    @abstractmethod
    def plain_step(self, step: int, rule: Rule, correction: Affine | BySlot) -> None:
        """Take a step that overwrites the lane's parameters ``y``, slot by slot.

        It leads to ``y - lr * (scale * g + pull * y + shift)``, or to ``y - lr * change(g)``. A
        client that has done all its steps is not moved.
        """

    def first_gradient(self) -> Tensor:
        """Return the first plain step's gradient ``[m, d]``, if it was corrected slot by slot."""
        raise NotImplementedError

    @abstractmethod
    def read(self) -> Tensor:
        """Return a copy of the lane's parameters after plain steps, ``[d]`` or ``[m, d]``."""

    @abstractmethod
    def update(self) -> Tensor:
        """Return what plain steps have added to the start, ``[d]`` or ``[m, d]``."""

    @abstractmethod
    def gradient(self, y: Tensor, step: int, rule: Rule) -> tuple[Tensor, Tensor]:
        """Return two gradients at ``y [d]`` or ``[m, d]``, on the batch of a step.

        The second is that of the hook ``second``; its last dimension is 0 if there is none.
        """

    @abstractmethod
    def running(self, step: int) -> Tensor | None:
        """Return which clients still train at ``step``, ``[m, 1]``; None if all do."""

    @abstractmethod
    def end(self) -> Tensor:
        """Return the buffers after training, ``[b]`` or ``[m, b]``."""
