"""A lane of a single client: what the loop engine and a Flower node compute."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedparity.engines.engine import Setup, batches_of
from fedparity.engines.evaluation import block_rows, blocks, losses, mixes_examples
from fedparity.engines.facts import example_means, known_facts, per_example, right_examples
from fedparity.engines.judging import judged, judged_block
from fedparity.engines.kernels.examples import example_gradients
from fedparity.engines.lane import IDENTITY, BySlot, Lane, Pieces, Rule, gradient_of, take_step
from fedparity.engines.reference.arranging import pool_first, turn
from fedparity.learning.frozen import moving, trainable
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import as_tensor
from fedparity.method.hints import Affine
from fedparity.method.messages import Down
from fedparity.workers import Crew

CONVOLUTION_BLOCK = 1 << 19
"""Input numbers of one block of a full batch's gradient: a core reads them twice, from cache."""


class Workspace:
    """A worker's copy of the model: that worker alone overwrites it.

    Only while all workers share the blocks of a full batch do the others read it (:meth:`copy`).

    Parameters
    ----------
    module
        The model, which is copied and not written to.
    layout
        Where its parameters are in the flat vector.
    channels_last
        Whether convolutions read and keep their numbers channels last, where they are faster.
    """

    def __init__(self, module: nn.Module, layout: Layout, channels_last: bool = False) -> None:
        self.module = pool_first(copy.deepcopy(module))
        self.layout, self.channels_last = layout, channels_last
        if channels_last:
            turn(self.module)
        self.parameters = tuple(p for _, p in trainable(self.module))

    @torch.no_grad()
    def place(self, x: Tensor) -> None:
        """Overwrite the parameters with ``x [d]``."""
        torch._foreach_copy_(self.parameters, self.layout.views(x))

    @torch.no_grad()
    def copy(self, parameters: tuple[Tensor, ...]) -> None:
        """Overwrite the parameters with those of another workspace, which are only read."""
        torch._foreach_copy_(self.parameters, parameters)

    @torch.no_grad()
    def read(self) -> Tensor:
        """Return a copy of the parameters as one vector, ``[d]``."""
        return self.layout.join(self.parameters, torch.Size())

    def place_buffers(self, b: Tensor) -> None:
        """Overwrite the buffers with the vector ``[b]``."""
        if self.layout.buffers:
            new = self.layout.buffer_tensors(b)
            for name, mine in moving(self.module):
                mine.copy_(new[name])

    def read_buffers(self) -> Tensor:
        """Return a copy of the buffers as one vector, ``[b]``."""
        if not self.layout.buffers:
            return self.parameters[0].new_zeros(0)
        return self.layout.pack_buffers(dict(self.module.named_buffers()), self.parameters[0])


def gradient_blocks(setup: Setup, workspace: Workspace, size: int) -> list[slice]:
    """Return the rows of each block of a full batch of so many, or nothing if it stays whole.

    Blocks pay where convolutions keep much more than they read; a sum of blocks has other bits
    than the whole, so those of all other models stay what they are.
    """
    algorithm = setup.algorithm
    hooked = any(map(algorithm.having, ("loss", "second", "examples")))
    if setup.solver.batch is not None or not workspace.channels_last:
        return []
    if hooked or mixes_examples(setup.module):
        return []
    rows = block_rows(setup.federation.train.x, CONVOLUTION_BLOCK)
    return [slice(start, start + rows) for start in range(0, size, rows)]


class OneClient(Lane):
    """A lane of a single client; it looks at no hint of a part, and is the oracle of the stack.

    It runs on the thread of the worker whose ``workspace`` it is given, and overwrites that. With a
    ``crew``, the blocks of a full batch are computed by all its workers, each in its own workspace.
    """

    def __init__(
        self,
        setup: Setup,
        workspace: Workspace,
        down: Down,
        client: int,
        crew: Crew[Workspace] | None = None,
        room: Tensor | None = None,
    ) -> None:
        self._room = room
        self.layout, self.algorithm, self.solver = setup.layout, setup.algorithm, setup.solver
        self.setup, self.workspace, self.client, self._down = setup, workspace, client, down
        self.progress = setup.progress(down)
        self._rows = setup.federation.train.client(client)
        size, ids = np.asarray([len(self._rows[1])]), np.asarray([client])
        self.longest = int(setup.lengths(ids)[0])
        device = down.x.device
        self.n = torch.full((), int(size[0]), device=device)
        self.steps = torch.full((), self.longest, device=device)
        self.plan = (
            self.solver.batches(setup.seeds(down, ids, batches_of(down)), size)
            if self.algorithm.takes_batches(down.phase)
            else None
        )
        self._blocks = gradient_blocks(setup, workspace, int(size[0]))
        self._crew = crew if crew is not None else Crew([workspace])

    @cached_property
    def seed(self) -> Tensor:
        ids = np.asarray([self.client])
        return as_tensor(self.setup.seeds(self._down, ids, "client"))[0].to(self._down.x.device)

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor]:
        return self.setup.federation.train.aligned(self.client)

    @property
    def x(self) -> Tensor:
        """All its inputs, where passes over all of them need them."""
        return self._whole[0]

    @property
    def y(self) -> Tensor:
        """All its targets."""
        return self._whole[1]

    def spread(self, x: Tensor) -> Tensor:
        return x

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def running(self, step: int) -> Tensor | None:
        return None

    def begin(self, y: Tensor, buffers: Tensor) -> None:
        self._anchor = y
        self.workspace.place(y)
        self.workspace.place_buffers(buffers)
        self.workspace.module.train()

    def end(self) -> Tensor:
        return self.workspace.read_buffers()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs ``[B, ...]`` and targets of a step: copies, without padding."""
        if self.plan is None:
            return self.x, self.y
        rows, (inputs, target) = self._places(step), self._rows
        return inputs.index_select(0, rows), target.index_select(0, rows)

    def _places(self, step: int) -> Tensor:
        """Return the places of a step's examples among the client's own."""
        if self.plan is None:
            return torch.arange(int(self.n), device=self.n.device)
        chosen = self.plan.index[0, step][self.plan.mask[0, step]]
        return torch.from_numpy(chosen).to(self.n.device)

    def fused(self, rule: Rule) -> Affine | None:
        return None if rule.having("grad") else IDENTITY

    def plain_step(self, step: int, rule: Rule, correction: Affine | BySlot) -> None:
        gradient, _ = self._gradient(step, rule)
        take_step(self.workspace.parameters, gradient, rule.lr)

    def read(self) -> Tensor:
        return self.workspace.read()

    @torch.no_grad()
    def update(self) -> Tensor:
        room = torch.empty_like(self._anchor) if self._room is None else self._room
        before, out = self.layout.views(self._anchor), self.layout.views(room)
        for slot in zip(self.workspace.parameters, before, out, strict=True):
            torch.sub(*slot[:2], out=slot[2])
        return room

    def gradient(self, y: Tensor, step: int, rule: Rule) -> tuple[Tensor, Tensor]:
        self.workspace.place(y)
        found, second = self._gradient(step, rule)
        return self.layout.join(found, torch.Size()), second

    def _gradient(self, step: int, rule: Rule) -> tuple[Pieces, Tensor]:
        """Return the gradient by slot at the workspace's parameters, and that of ``second [d]``."""
        none = self.workspace.parameters[0].new_zeros(0)
        if len(self._blocks) > 1:
            return self._block_by_block(), none
        inputs, target = self.batch(step)
        if rule.having("examples"):
            return self._by_example(inputs, target, step, rule), none
        output = self.workspace.module(inputs)
        losses = self.setup.task.losses(output, target)
        if rule.having("loss"):
            batch = {
                "inputs": inputs,
                "share": torch.full_like(losses, self._share(len(losses))).detach(),
                "predict": self._predict,
                "augment": self.setup.task.augment,
                "groups": self._groups(step),
            }
            losses = rule.losses(rule.tree, losses, output, target, batch, step)
        second = self._second(losses, step, rule) if rule.having("second") else none
        return gradient_of(self._mean(losses), self.workspace.parameters), second

    def _groups(self, step: int) -> dict[str, Tensor]:
        """Return the groups of a step's examples, of the kinds that parts go by."""
        if not self.algorithm.group_kinds:
            return {}
        first = int(self.setup.federation.train.offsets[self.client])
        return self.setup.groups_at(first + self._places(step))

    def _share(self, count: int) -> float:
        """Return the share of one example in the mean of a batch of so many."""
        return 1 / (self.solver.expected or max(1, count))

    def _mean(self, losses: Tensor) -> Tensor:
        """Return the mean of a batch's losses ``[B]``; of a lot, the sum over its expected size."""
        expected = self.solver.expected
        return losses.mean() if expected is None else losses.sum() / expected

    def _by_example(self, inputs: Tensor, target: Tensor, step: int, rule: Rule) -> Pieces:
        """Return the gradient by slot, as the mean of the examples' own that a part has changed."""
        named = {name: p.detach() for name, p in trainable(self.workspace.module)}
        task, module = self.setup.task, self.workspace.module
        each = example_gradients(task, module, self.layout, named, inputs, target)
        changed = rule.examples(rule.tree, each, step)
        return tuple(self.layout.views(changed.sum(0) * self._share(len(inputs))))

    def _block_by_block(self) -> Pieces:
        """Return the gradient of a large full batch by slot: those of the blocks, added in order.

        Every worker computes blocks in its own workspace, whose parameters it first overwrites with
        this lane's; the thread that runs the lane adds the results.
        """
        y = self.workspace.parameters

        def one(block: int, workspace: Workspace) -> Pieces:
            if workspace is not self.workspace:
                workspace.copy(y)
                workspace.module.train()
            rows = self._blocks[block]
            each = self.setup.task.losses(workspace.module(self.x[rows]), self.y[rows])
            return gradient_of(each.sum() / len(self.x), workspace.parameters)

        total = tuple(torch.zeros_like(parameter) for parameter in y)
        for found in self._crew.stream(len(self._blocks), one):
            torch._foreach_add_(total, found)
        return total

    def _predict(self, inputs: Tensor) -> Tensor:
        """Return the output on other inputs; the buffers are not changed by them."""
        copies = {name: b.clone() for name, b in self.workspace.module.named_buffers()}
        output: Tensor = functional_call(self.workspace.module, copies, (inputs,))
        return output

    def _second(self, losses: Tensor, step: int, rule: Rule) -> Tensor:
        """Return the gradient ``[d]`` that the ``second`` hook asks for; 0 before its layers."""
        (part,) = rule.having("second")
        start = part.second_from(self.layout)
        found = losses.new_zeros(self.layout.size)
        last = tuple(
            parameter
            for slot, parameter in zip(self.layout.slots, self.workspace.parameters, strict=True)
            if slot.start >= start
        )
        if last:
            wanted = self._mean(rule.second(rule.tree, losses, step))
            grads = gradient_of(wanted, last, retain_graph=True)
            found[start:] = self.layout.join(grads, torch.Size())
        return found

    def measure(self, y: Tensor, buffers: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        self.workspace.place(y)
        self.workspace.place_buffers(buffers)
        found = known_facts(self.setup, self.client, names)
        if "loss" in names:
            down, module = self._down, self.workspace.module
            found["loss"] = judged(self.setup, module, self.x, self.y, down).mean()
        if "validation_loss" in names:
            inputs, target = self.setup.federation.validation.aligned(self.client)
            found["validation_loss"] = (
                self._loss(inputs, target) if len(inputs) else self._loss(self.x, self.y)
            )
        if functions := per_example(self.setup, names):
            own = (self.client, self.x, self.y)
            found |= example_means(self.setup, self.workspace.module, *own, functions)
        if "right" in names:
            found["right"] = right_examples(self.setup, self.workspace.module, self.x, self.y)
        if "grad" in names:
            found["grad"] = self._full_gradient()
        return found

    def _loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return losses(self.setup.task, self.workspace.module, inputs, target).mean()

    def _full_gradient(self) -> Tensor:
        """Return the gradient ``[d]`` of the training loss as the algorithm judges it.

        The workspace's model is put into eval mode.
        """
        workspace = self.workspace
        workspace.module.eval()
        total = workspace.parameters[0].new_zeros(self.layout.size)
        for rows in blocks(self.x):
            each = judged_block(
                self.setup, workspace.module, self.x[rows], self.y[rows], self._down
            )
            grads = gradient_of(each.sum() / len(self.x), workspace.parameters)
            total += self.layout.join(grads, torch.Size())
        return total
