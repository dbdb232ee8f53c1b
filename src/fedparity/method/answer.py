"""The client side of a round: one pure function, told in the order it happens.

``train`` and ``probe`` are written for a *lane*: one client (the loop engine, a Flower node) or a
stack of clients with one more leading dimension (the vmap engine). What differs between the two,
how hooks are lifted and how a gradient is computed, is behind the :class:`Lane` protocol; the
training loop exists once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.learning.solver import Solver
from fedparity.method.algorithm import Algorithm
from fedparity.method.part import Client, Fact, Part, Tensors, is_stacked

Tree = Mapping[str, Any]
Named = dict[str, dict[str, Tensor]]
"""Tensors by part, then by name."""
Measured = Callable[[], dict[str, Tensor]]
"""What was measured, to be asked for as late as may be: it may be under way beside training."""
GRADIENTS: frozenset[Fact] = frozenset({"first_grad", "last_second"})
"""Facts that plain steps, which store no gradient, do not meet."""


@dataclass(frozen=True)
class Down:
    """What the server sends in one exchange."""

    phase: str
    round: int
    lr: float
    x: Tensor
    buffers: Tensor
    shared: Mapping[str, Tensors] = field(default_factory=dict)
    each: Mapping[str, Tensors] = field(default_factory=dict)
    """By part; the first dimension is the cohort."""


@dataclass(frozen=True)
class Up:
    """What a lane sends back and keeps."""

    reports: Named
    deltas: Tensor | None = None
    buffers: Tensor | None = None
    states: Named = field(default_factory=dict)
    sums: Tensor | None = None
    """The sum of each update, where workers have made it already."""


class Lane(Protocol):
    """One client, or a stack of clients, ready to compute."""

    layout: Layout
    algorithm: Algorithm
    solver: Solver
    n: Tensor
    steps: Tensor
    seed: Tensor
    longest: int
    progress: float

    def spread(self, x: Tensor) -> Tensor:
        """Return ``x`` for every client of the lane."""

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of one client's tensors as a function of the lane's."""

    def facts(self, y: Tensor, buffers: Tensor, reads: frozenset[Fact]) -> Measured:
        """Measure what parts read where local training starts, or let it begin."""

    def end_loss(self, y: Tensor, buffers: Tensor) -> Tensor:
        """Return the mean training loss at each client's own parameters."""

    def begin(self, y: Tensor, buffers: Tensor) -> None:
        """Take in where training starts."""

    def descend(self, step: int, tree: Tree, down: Down, factor: Tensor | None) -> None:
        """Take a plain step, times ``factor``, from where the lane stands.

        A client that has done its steps stays.
        """

    def stand(self) -> Tensor:
        """Return where the lane stands after plain steps."""

    def update(self) -> Tensor:
        """Return how far plain steps have led from where they began."""

    def gradient(self, y: Tensor, step: int, tree: Tree, down: Down) -> tuple[Tensor, Tensor]:
        """Return the batch gradient and that of the ``second`` hook (empty if there is none)."""

    def running(self, step: int) -> Tensor | None:
        """Return which clients still train at ``step``, shaped to select rows; None if all do."""

    def end(self) -> Tensor:
        """Return the buffers after training."""


def views(
    lane: Lane, hook: str, tree: Tree, down: Down, **more: object
) -> list[tuple[Part, Client]]:
    """Return the parts that use a hook, each with what it sees of the client in ``tree``."""
    return [
        (part, _view(part, hook, lane, tree, down, more)) for part in lane.algorithm.having(hook)
    ]


def hooked_losses(
    lane: Lane,
    tree: Tree,
    down: Down,
    losses: Tensor,
    output: Tensor,
    target: Tensor,
    **more: object,
) -> Tensor:
    """Return a batch's losses as the parts with a ``loss`` hook want them."""
    for part, c in views(lane, "loss", tree, down, **more):
        losses = part.loss(losses, output, target, c)
    return losses


def _view(
    part: Part, hook: str, lane: Lane, tree: Tree, down: Down, more: Mapping[str, object]
) -> Client:
    facts = tree["facts"]
    return Client(
        down.lr,
        down.round,
        lane.layout,
        anchor=tree.get("anchor", down.x),
        down={**down.shared.get(part.name, {}), **tree["each"].get(part.name, {})},
        state=tree["state"].get(part.name, {}),
        n=tree["n"],
        steps=tree["steps"],
        progress=lane.progress,
        seed=tree["seed"],
        purpose=f"{part.name}.{hook}",
        _facts=facts if callable(facts) else lambda: facts,
        **more,
    )


def probe(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Measure where training would start; nothing is trained and no state changes."""
    tree, anchor = _begin(lane, down, state)
    reads = lane.algorithm.probe_reads
    tree = _settled({**tree, "facts": lane.facts(anchor, buffers, reads)})
    if "first_grad" in reads:
        lane.begin(anchor, buffers)
        found, _ = lane.gradient(anchor, 0, tree, down)
        tree = {**tree, "facts": {**tree["facts"], "first_grad": found}}

    def measure(tree: Tree) -> Named:
        return {p.name: dict(p.measure(c)) for p, c in views(lane, "measure", tree, down)}

    return Up(lane.lift(measure)(tree))


def train(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Run one client's part of a round: start, local steps, finish."""
    algorithm, solver = lane.algorithm, lane.solver
    tree, anchor = _begin(lane, down, state)
    tree = {**tree, "facts": lane.facts(anchor, buffers, algorithm.train_reads)}
    if looks_early(algorithm, solver):
        tree = _settled(tree)
    lane.begin(anchor, buffers)
    steps = lane.longest if algorithm.trains else 0
    end: Callable[[], Tensor]
    scaled = all(part.scales for part in algorithm.having("grad"))
    met: dict[str, Tensor]
    if solver.plain and scaled and not algorithm.train_reads & GRADIENTS:
        met = {"first": _plain_steps(lane, steps, tree, down, anchor)}
        delta, end = lane.update(), lane.stand
    else:
        y, met = _steps(lane, steps, tree, down, anchor)
        delta, end = y - anchor, lambda: y
    ended, tree = lane.end(), _settled(tree)

    if not algorithm.having("finish"):
        return Up({}, delta, ended, state)
    facts = {**tree["facts"], **{k: v for k, v in met.items() if k in algorithm.train_reads}}
    if "end_loss" in algorithm.train_reads:
        facts["end_loss"] = lane.end_loss(end(), ended)
    tree = {**tree, "facts": facts}
    if all(is_stacked(part.finish) for part in algorithm.having("finish")):
        delta, reports, states = _finish(lane, tree, down, delta, end)
    else:
        lifted = lane.lift(lambda tree, delta, y: _finish(lane, tree, down, delta, lambda: y))
        delta, reports, states = lifted(tree, delta, end())
    return Up(reports, delta, ended, states)


def looks_early(algorithm: Algorithm, solver: Solver) -> bool:
    """Tell whether what is measured has to be there before the first step.

    So it has for hooks that are called at every step, and for those lifted to a stack.
    """
    scaling = algorithm.having("grad")
    once = solver.plain and all(part.scales and is_stacked(part.factor) for part in scaling)
    return not once or bool(algorithm.having("loss") or algorithm.having("second"))


def _plain_steps(lane: Lane, steps: int, tree: Tree, down: Down, anchor: Tensor) -> Tensor:
    """Take steps ``y - lr * g`` where the lane stands; return the first ``y``."""
    first, factor = anchor, None
    if scaling := lane.algorithm.having("grad"):
        found = partial(_factor, lane, down)
        as_is = all(is_stacked(part.factor) for part in scaling)
        factor = (found if as_is else lane.lift(found))(tree)
    for step in range(steps):
        lane.descend(step, tree, down, factor)
        if step == 0 and "first" in lane.algorithm.train_reads:
            first = lane.stand()
    return first


def _steps(
    lane: Lane, steps: int, tree: Tree, down: Down, anchor: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Take steps of any rule, corrected by parts; return the last ``y`` and what was met."""
    solver, correcting = lane.solver, lane.algorithm.having("grad")
    correct = lane.lift(lambda tree, g, second, y: _grad(lane, tree, down, g, second, y, step))
    y, slots, second = anchor, solver.slots(anchor), anchor[..., :0]
    met = {"first": anchor, "first_grad": torch.zeros_like(anchor)}
    for step in range(steps):
        g, found = lane.gradient(y, step, tree, down)
        if step == 0:
            met["first_grad"] = g
        if correcting:
            g = correct(tree, g, found, y)
        moved, after = solver.update(y, g, slots, down.lr, step)
        running = lane.running(step)
        if running is None:
            y, slots, second = moved, after, found
        else:
            second = torch.where(running, found, second if step else found)
            y = torch.where(running, moved, y)
            slots = tuple(torch.where(running, a, b) for a, b in zip(after, slots, strict=True))
        if step == 0:
            met["first"] = y
    return y, {**met, "last_second": second}


def personal(lane: Lane, down: Down, state: Named) -> Tensor:
    """Return the parameters each client of the lane would really use."""
    tree = _tree(lane, down, state)

    def use(tree: Tree, x: Tensor) -> Tensor:
        for part, c in views(lane, "personal", tree, down):
            x = part.personal(x, c)
        return x

    result: Tensor = lane.lift(use)(tree, lane.spread(down.x))
    return result


def _begin(lane: Lane, down: Down, state: Named) -> tuple[Tree, Tensor]:
    """Return what is known before the first step, and where it is taken."""
    tree, y = _tree(lane, down, state), lane.spread(down.x)
    if lane.algorithm.having("start"):
        y = lane.lift(lambda tree, y: _start(lane, tree, down, y))(tree, y)
        tree = {**tree, "anchor": y}
    return tree, y


def _settled(tree: Tree) -> Tree:
    """Return the tree with what was measured in it, and not still under way."""
    return {**tree, "facts": tree["facts"]()} if callable(tree["facts"]) else tree


def _tree(lane: Lane, down: Down, state: Named) -> Tree:
    if not lane.algorithm.parts:  # nobody looks
        return {"facts": {}}
    each = {part: dict(tensors) for part, tensors in down.each.items()}
    return {
        "each": each,
        "state": state,
        "facts": {},
        "n": lane.n.to(down.x.dtype),
        "steps": lane.steps.to(down.x.dtype),
        "seed": lane.seed,
    }


def _start(lane: Lane, tree: Tree, down: Down, y: Tensor) -> Tensor:
    for part, c in views(lane, "start", tree, down):
        y = part.start(y, c)
    return y


def _factor(lane: Lane, down: Down, tree: Tree) -> Tensor:
    """Return the product of what parts multiply every gradient of the round by."""
    found = torch.ones_like(tree["n"])
    for part, c in views(lane, "grad", tree, down):
        found = found * part.factor(c)
    return found


def _grad(
    lane: Lane, tree: Tree, down: Down, g: Tensor, second: Tensor, y: Tensor, step: int
) -> Tensor:
    for part, c in views(lane, "grad", tree, down, second=second, step=step):
        g = part.grad(g, y, c)
    return g


def _finish(
    lane: Lane, tree: Tree, down: Down, delta: Tensor, after: Callable[[], Tensor]
) -> tuple[Tensor, Named, Named]:
    reports: Named = {}
    states: Named = {part: dict(tensors) for part, tensors in tree["state"].items()}
    for part, c in views(lane, "finish", tree, down, after=after):
        done = part.finish(delta, c)
        delta = done.delta
        if done.report:
            reports[part.name] = dict(done.report)
        if done.state:
            states[part.name] = dict(done.state)
    return delta, reports, states
