"""A lane of several clients: one more dimension of every tensor.

A model that is a chain of linear layers is computed by written-out matrix products. Any other one's
forward pass is lifted with ``torch.func.vmap``, as the parts' hooks are, and the backward pass is
ordinary autograd on the stack: clients are independent, so the gradient of the sum of their losses
holds every client's gradient in its own row. The task's loss is an example's own affair and is
computed on all examples of the chunk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from fedparity.data import Split
from fedparity.engines.engine import Ids, Setup, batches_of
from fedparity.engines.evaluation import block_rows
from fedparity.engines.facts import known_facts, per_example
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.kernels.examples import example_gradients
from fedparity.engines.lane import (
    IDENTITY,
    BySlot,
    Lane,
    Pieces,
    Rule,
    Tree,
    gradient_of,
    take_step,
)
from fedparity.engines.stacked.batches import Batches, Group, Slotted, padded, summed, weights_of
from fedparity.errors import InputError
from fedparity.learning.seeds import as_tensor
from fedparity.method.facts import PerExample
from fedparity.method.hints import Affine
from fedparity.method.messages import Down
from fedparity.workers import Crew

Facts = dict[str, Tensor]


class Block(NamedTuple):
    """Examples ``start .. start + width`` of some clients of a stack."""

    who: slice
    start: int
    width: int


class Work(NamedTuple):
    """What is laid out for a lane before its worker begins."""

    start: Slotted | None = None
    """The model, for each of its clients."""
    room: Slotted | None = None
    """Where their updates go."""
    batches: Batches | None = None
    """What their steps read, if they have batches."""


class Stack(Lane):
    """A lane of several clients, padded to the largest."""

    crew: Crew[Any] = Crew([None])
    """Who goes through the blocks of the clients' examples: here the worker itself."""

    def __init__(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        facts: Facts | None = None,
        chain: Chain | None = None,
        work: Work | None = None,
    ) -> None:
        """Make the lane of these clients; what of its work is not laid out is made here."""
        start, room, batches = Work() if work is None else work
        if start is None:
            start = Slotted.of(setup.layout, down.x.expand(len(clients), -1))
        self.layout, self.algorithm, self.solver = setup.layout, setup.algorithm, setup.solver
        self.setup, self.clients, self._pooled, self.chain = setup, clients, facts, chain
        self.data, self.progress = setup.federation.train, setup.progress(down)
        sizes = self.data.sizes[clients]
        lengths = setup.lengths(clients)
        self.longest = int(lengths.max())
        self.n, self.steps = torch.from_numpy(sizes), torch.from_numpy(lengths)
        self._round, self._start, self._room, self._batches = down, start, room, batches
        self._uneven = bool((lengths != self.longest).any())
        if not self.algorithm.takes_batches(down.phase):
            return
        if self._batches is None:
            plan = self.solver.batches(setup.seeds(down, clients, batches_of(down)), sizes)
            if plan is not None:
                everyone = Group(slice(None), *plan.index.shape[1:])
                groups = Batches.by_group(
                    self.data, clients, plan, [everyone], self.solver.expected, down.x.dtype
                )
                (self._batches,) = groups
        if self.layout.buffers and self._partial(sizes):
            raise InputError(
                "engine 'vmap' cannot pad batches of a model with BatchNorm statistics: "
                "use engine 'loop', or a batch that divides every client's examples"
            )

    def _partial(self, sizes: Ids) -> bool:
        """Tell whether some batch would be padded."""
        if self._batches is None:
            return bool((sizes != sizes[0]).any())
        return self._batches.partial

    @cached_property
    def seed(self) -> Tensor:
        return as_tensor(self.setup.seeds(self._round, self.clients, "client"))

    def spread(self, x: Tensor) -> Tensor:
        return self._start.flat if x is self._round.x else x.expand(len(self.clients), -1)

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return vmap(function)

    def running(self, step: int) -> Tensor | None:
        return (self.steps > step)[:, None] if self._uneven else None

    def begin(self, y: Tensor, buffers: Tensor) -> None:
        self._anchor = y
        self._buffers = buffers.expand(len(self.clients), -1)
        self._begun = self._start.pieces
        if y is not self._start.flat:
            self._begun = tuple(self.layout.views(y))
        pieces = self._begun
        # A chain's first step makes the clients' own parameters.
        self._own = self.chain is None
        if self._own:
            self.setup.module.train()
            pieces = tuple(p.clone(memory_format=torch.contiguous_format) for p in pieces)
        self._slots = self._leaves(pieces)

    def stand(self) -> Tensor:
        return self.layout.join(self._slots, torch.Size([len(self.clients)])).detach()

    @torch.no_grad()
    def update(self) -> Tensor:
        room = self._room
        if room is None:
            room = Slotted.of(self.layout, torch.empty_like(self._anchor))
        for slot, before, out in zip(self._slots, self._begun, room.pieces, strict=True):
            torch.sub(slot, before, out=out)
        return room.flat

    def fused(self, rule: Rule) -> Affine | BySlot | None:
        """Return the corrections as one, if every part that makes one tells it (``affine``)."""
        correction, parts = IDENTITY, rule.having("grad")
        if len(parts) == 1 and hasattr(parts[0], "by_slot"):
            change = parts[0].by_slot(rule.view(parts[0], "grad", rule.tree))
            return None if change is None else BySlot(change)
        for part in parts:
            tell = getattr(part, "affine", None)
            if tell is None:
                return None
            try:
                correction = correction.then(tell(rule.view(part, "grad", rule.tree)))
            except ValueError:  # the two do not make one
                return None
        moves = correction.pull or correction.shift is not None
        if self._uneven and moves:  # who has done its steps would still be moved
            return None
        self._shift = self._shifted(correction, rule.lr)
        return correction

    def _shifted(self, correction: Affine, lr: float) -> list[tuple[int, Tensor]]:
        """Return what every step adds to the slots: place, and ``[m, *shape]`` or ``[*shape]``."""
        if correction.shift is None:
            return []
        places = [i for i, s in enumerate(self.layout.slots) if s.start >= correction.start]
        slots = [self.layout.slots[i] for i in places]
        added = correction.shift * -lr
        pieces = added.split_with_sizes([s.stop - s.start for s in slots], -1)
        lead = added.shape[:-1]
        views = [piece.view(lead + s.shape) for piece, s in zip(pieces, slots, strict=True)]
        return list(zip(places, views, strict=True))

    def plain_step(self, step: int, rule: Rule, correction: Affine | BySlot) -> None:
        if isinstance(correction, BySlot):
            return self._step_by_slot(step, rule, correction)
        keep = 1 - rule.lr * correction.pull
        if self.chain is not None:
            batch = self.batch(step, correction.scale)
            self._slots = self.chain.descend(self._slots, *batch, rule.lr, self._own, keep)
            self._own = True
        else:
            gradient, _ = self._gradient(self._slots, step, rule, correction.scale)
            take_step(self._slots, gradient, rule.lr, keep)
        self._add_shift()

    def _step_by_slot(self, step: int, rule: Rule, correction: BySlot) -> None:
        """Take a step along a gradient that is stored and corrected; written over the gradient."""
        gradient, _ = self._gradient(self._slots, step, rule)
        if step == 0 and "first_grad" in rule.wants:
            self._first = self.layout.join(gradient, torch.Size([len(self.clients)]))
        gradient = correction.change(gradient)
        if self.chain is None:
            take_step(self._slots, gradient, rule.lr)
        else:
            self._slots = take_step(self._slots, gradient, rule.lr, over_gradient=True)

    def first_gradient(self) -> Tensor:
        return self._first

    @torch.no_grad()
    def _add_shift(self) -> None:
        for place, added in self._shift:
            self._slots[place].add_(added)

    def gradient(self, y: Tensor, step: int, rule: Rule) -> tuple[Tensor, Tensor]:
        leaves = self._leaves(self.layout.views(y))
        found, second = self._gradient(leaves, step, rule)
        return self.layout.join(found, y.shape[:1]), second

    def _leaves(self, pieces: Iterable[Tensor]) -> Pieces:
        """Return the pieces, recorded by autograd unless the chain does without."""
        if self.chain is not None:
            return tuple(pieces)
        return tuple(piece.detach().requires_grad_() for piece in pieces)

    def end(self) -> Tensor:
        return self._buffers

    def batch(self, step: int, scale: Tensor | float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, targets ``[m, B, ...]`` and the share of each example in its mean.

        Shares are times ``scale``, a number for all or one a client.
        """
        if self._batches is None:  # a full batch
            inputs, target, share = self._whole
        else:
            inputs, target, share = self._batches.at(step, self._inputs)
        if isinstance(scale, Tensor):
            return inputs, target, share * (scale[:, None] if scale.dim() else scale)
        return inputs, target, share if scale == 1.0 else share * scale

    @cached_property
    def _inputs(self) -> Tensor:
        """Room for the inputs of a batch, the same at every step."""
        assert self._batches is not None
        return self._batches.room()

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor, Tensor]:
        longest = int(self.data.sizes[self.clients].max())
        inputs, target, mask = padded(self.data, self.clients, 0, longest)
        return inputs, target, weights_of(target.shape[:2], mask, self._start.flat.dtype)

    def blocks(self, data: Split) -> list[Block]:
        """Return all examples of the clients, in blocks of bounded size."""
        longest = int(data.sizes[self.clients].max())
        width = block_rows(data.x) // len(self.clients) + 1 if longest else 1
        return [
            Block(slice(None), start, min(width, longest - start))
            for start in range(0, longest, width)
        ]

    def _gradient(
        self, leaves: Pieces, step: int, rule: Rule, scale: Tensor | float = 1.0
    ) -> tuple[Pieces, Tensor]:
        """Return the gradient by slot, times ``scale``, and that of ``second``."""
        inputs, target, share = self.batch(step, scale)
        none = leaves[0].new_zeros(len(self.clients), 0)
        if self.chain is not None:
            return self.chain.gradient(leaves, inputs, target, share), none
        if rule.having("examples"):
            return self._by_example(leaves, inputs, target, share, step, rule), none
        output, after = vmap(self._forward)(self._named(leaves), self._buffers, inputs)
        losses = self._losses(output, target)
        if rule.having("loss"):
            losses = vmap(self._hooked(step, rule))(
                rule.tree, self._named(leaves), self._buffers, losses, output, target, inputs, share
            )
        second = self._second(losses, leaves, share, step, rule) if rule.having("second") else none
        if after.shape[1]:
            running = self.running(step)
            kept = self._buffers
            self._buffers = after if running is None else torch.where(running, after, kept)
        return gradient_of(losses, leaves, share), second

    def _second(
        self, losses: Tensor, leaves: Pieces, share: Tensor, step: int, rule: Rule
    ) -> Tensor:
        """Return the gradient ``[m, d]`` that the ``second`` hook asks for; 0 before its layers."""
        wanted = vmap(lambda tree, each: rule.second(tree, each, step))(rule.tree, losses)
        cut = rule.having("second")[0].second_from(self.layout)
        second = leaves[0].new_zeros(len(self.clients), self.layout.size)
        slots = zip(self.layout.slots, leaves, strict=True)
        last = tuple(leaf for slot, leaf in slots if slot.start >= cut)
        if last:
            found = gradient_of(wanted, last, share, retain_graph=True)
            second[:, cut:] = self.layout.join(found, second.shape[:1])
        return second

    def _by_example(
        self, leaves: Pieces, inputs: Tensor, target: Tensor, share: Tensor, step: int, rule: Rule
    ) -> Pieces:
        """Return the gradient by slot, as the mean of the examples' own that a part has changed."""
        task, module, layout = self.setup.task, self.setup.module, self.layout

        def one(
            tree: Tree, named: dict[str, Tensor], inputs: Tensor, target: Tensor, share: Tensor
        ) -> Tensor:
            each = example_gradients(task, module, layout, named, inputs, target)
            return share @ rule.examples(tree, each, step)

        named = {name: leaf.detach() for name, leaf in self._named(leaves).items()}
        found: Tensor = vmap(one)(rule.tree, named, inputs, target, share)
        return tuple(layout.views(found))

    def _named(self, pieces: Pieces) -> dict[str, Tensor]:
        return {slot.name: p for slot, p in zip(self.layout.slots, pieces, strict=True)}

    def _forward(
        self, parameters: dict[str, Tensor], buffers: Tensor, inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        if not self.layout.buffers:
            return functional_call(self.setup.module, parameters, (inputs,)), buffers
        own = self.layout.buffer_tensors(buffers)
        output = functional_call(self.setup.module, {**parameters, **own}, (inputs,))
        return output, self.layout.pack_buffers(own, buffers)

    def _hooked(self, step: int, rule: Rule) -> Callable[..., Tensor]:
        def hooked(
            tree: Tree,
            parameters: dict[str, Tensor],
            buffers: Tensor,
            losses: Tensor,
            output: Tensor,
            target: Tensor,
            inputs: Tensor,
            share: Tensor,
        ) -> Tensor:
            def predict(other: Tensor) -> Tensor:
                return self._forward(parameters, buffers, other)[0]

            batch = {
                "inputs": inputs,
                "share": share,
                "predict": predict,
                "augment": self.setup.task.augment,
            }
            return rule.losses(tree, losses, output, target, batch, step)

        return hooked

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        flat = self.setup.task.losses(output.flatten(0, 1), target.flatten(0, 1))
        return flat.view(target.shape[:2])

    def measure(self, y: Tensor, buffers: Tensor, names: frozenset[str]) -> Facts:
        """Measure facts ``[m, ...]``; the worker's module is put into eval mode."""
        buffers = buffers.expand(len(self.clients), -1)
        found = known_facts(self.setup, self.clients, names)
        if self._pooled is not None and y is self._start.flat:  # of the model that all received
            found |= {name: self._pooled[name] for name in names if name in self._pooled}
        if "loss" in names - found.keys():
            sums = self.own_sums("train", y, buffers, judged=True)["loss"]
            found["loss"] = (sums / self.n).to(y.dtype)
        if "validation_loss" in names - found.keys():
            found["validation_loss"] = self._validation_loss(y, buffers)
        if functions := per_example(self.setup, names):
            totals = self.own_sums("train", y, buffers, more=functions)
            for name in functions:
                total = totals[name]
                count = self.n.view(-1, *[1] * (total.dim() - 1))
                found[name] = (total / count).to(y.dtype)
        if "grad" in names:
            found["grad"] = self._full_gradient(y, buffers)
        return found

    def _validation_loss(self, y: Tensor, buffers: Tensor) -> Tensor:
        """Return the validation loss, and the training loss where a client has no such example."""
        sizes = torch.from_numpy(self.setup.federation.validation.sizes[self.clients])
        none = torch.zeros(len(sizes), dtype=torch.float64)
        value = self.own_sums("validation", y, buffers).get("loss", none) / sizes.clamp_min(1)
        if bool((sizes == 0).any()):
            plain = self.own_sums("train", y, buffers)["loss"] / self.n
            value = torch.where(sizes > 0, value, plain)
        return value.to(y.dtype)

    def _full_gradient(self, y: Tensor, buffers: Tensor) -> Tensor:
        self.setup.module.eval()
        leaves = self._leaves(self.layout.views(y))
        return self.layout.join(self.gradient_by_blocks(leaves, buffers), y.shape[:1])

    def gradient_by_blocks(
        self, leaves: Pieces, buffers: Tensor, scale: Tensor | float = 1.0
    ) -> Pieces:
        """Return the gradient of each client's mean loss over all its examples, by slot.

        The loss is as the algorithm judges it. Times ``scale``, a number for all or one a client.
        """
        work = self.blocks(self.data)

        def one(block: int, _: object) -> Pieces:
            who, *rows = work[block]
            inputs, target, mask = padded(self.data, self.clients[who], *rows)
            kept = None if mask is None else mask.to(leaves[0].dtype)
            some = tuple(leaf[who] for leaf in leaves)
            if self.chain is not None:
                return self.chain.gradient(some, inputs, target, kept)
            output, _ = vmap(self._forward)(self._named(some), buffers[who], inputs)
            losses = self._losses(output, target)
            if self.algorithm.having("judge"):
                named = self._named(some)
                losses = vmap(self._judged)(named, buffers[who], inputs, losses, output, target)
            return gradient_of(losses, some, torch.ones_like(losses) if kept is None else kept)

        total = tuple(torch.zeros_like(leaf, requires_grad=False) for leaf in leaves)
        for block, found in zip(work, self.crew.stream(len(work), one), strict=True):
            torch._foreach_add_(tuple(slot[block.who] for slot in total), found)
        # The mean is taken once, of the sum.
        share = scale / self.n.to(leaves[0].dtype)
        for slot in total:
            slot.mul_(share.view(-1, *[1] * (slot.dim() - 1)))
        return total

    @torch.no_grad()
    def own_sums(
        self,
        split: str,
        y: Tensor,
        buffers: Tensor,
        judged: bool = False,
        more: dict[str, PerExample] | None = None,
        shares: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return sums over each client's examples at its own parameters, in float64.

        Of loss and metrics, or of the functions ``more`` of losses, outputs and targets. With
        ``shares [m, M]`` the parameters are ``[m, M, d]``, whose predictions are mixed.
        """
        self.setup.module.eval()
        data: Split = getattr(self.setup.federation, split)
        work = self.blocks(data)

        def one(block: int, _: object) -> dict[str, Tensor]:
            who, *rows = work[block]
            inputs, target, mask = padded(data, self.clients[who], *rows)
            mixing = None if shares is None else shares[who]
            found = self._measured(y[who], buffers[who], inputs, target, judged, more, mixing)
            shape = target.shape[:2]
            each = {k: v if v.dim() > 1 else v.view(shape) for k, v in found.items()}
            return {key: summed(value.double(), mask) for key, value in each.items()}

        sums: dict[str, Tensor] = {}
        for block, found in zip(work, self.crew.stream(len(work), one), strict=True):
            for key, value in found.items():
                rest = value.shape[1:]
                total = sums.setdefault(key, value.new_zeros(len(self.clients), *rest))
                total[block.who] += value
        return sums

    def _measured(
        self,
        y: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        target: Tensor,
        judged: bool,
        more: dict[str, PerExample] | None,
        shares: Tensor | None,
    ) -> dict[str, Tensor]:
        """Return loss and metrics, or the functions ``more``, of the examples of a block."""
        if shares is None:
            output = self._outputs(y, buffers, inputs)
        else:
            each = torch.stack([self._outputs(one, buffers, inputs) for one in y.unbind(1)])
            output = self.setup.task.mixed(each, shares.T)
        flat, wanted = output.flatten(0, 1).contiguous(), target.flatten(0, 1)
        found = {"loss": self.setup.task.losses(flat, wanted)}
        if more is not None:
            made = {name: f(found["loss"], flat, wanted) for name, f in more.items()}
            shape = target.shape[:2]
            return {name: v.reshape(*shape, *v.shape[1:]) for name, v in made.items()}
        found |= self.setup.task.metrics(flat, wanted)
        if judged and self.algorithm.having("judge"):
            named = self._named(tuple(self.layout.views(y)))
            losses = found["loss"].view(target.shape[:2])
            found["loss"] = vmap(self._judged)(named, buffers, inputs, losses, output, target)
        return found

    def _outputs(self, y: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        """Return the outputs ``[m, B, ...]`` of each client's parameters ``[m, d]``."""
        if self.chain is not None:
            return self.chain.outputs(tuple(self.layout.views(y)), inputs)
        found: Tensor = vmap(self._still)(y, buffers, inputs)
        return found

    def _judged(
        self,
        parameters: dict[str, Tensor],
        buffers: Tensor,
        inputs: Tensor,
        losses: Tensor,
        output: Tensor,
        target: Tensor,
    ) -> Tensor:
        def view(u: Tensor) -> Tensor:
            return self._forward(parameters, buffers, self.setup.task.augment(inputs, u))[0]

        return self.algorithm.judge(losses, output, target, view, self.progress)

    def _still(self, y: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        """Return the model's output without touching its buffers."""
        tensors = {**self.layout.parameters(y), **self.layout.buffer_tensors(buffers)}
        output: Tensor = functional_call(self.setup.module, tensors, (inputs,))
        return output
