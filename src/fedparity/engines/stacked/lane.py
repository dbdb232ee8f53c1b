"""A lane of ``m`` clients: every tensor has one more leading dimension.

A model that is a chain of linear layers is computed by written-out matrix products. The forward
pass of any other one is lifted with ``torch.func.vmap``, as the parts' hooks are, and the backward
pass is ordinary autograd on the stack: clients are independent, so the gradient of the sum of their
losses holds every client's gradient in its own row. The task's loss of an example depends on that
example alone, so it is computed for all ``[m, B]`` examples of the stack at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from fedparity.engines.engine import Ids, Setup, batches_of
from fedparity.engines.kernels.chain import Chain, Share
from fedparity.engines.kernels.examples import example_gradients
from fedparity.engines.lane import (
    IDENTITY,
    BySlot,
    Pieces,
    Rule,
    Tree,
    gradient_of,
    take_step,
)
from fedparity.engines.stacked.batches import Batches, Group, Slotted, padded, places, weights_of
from fedparity.engines.stacked.measuring import Facts, Measuring
from fedparity.errors import InputError
from fedparity.learning.seeds import as_tensor
from fedparity.method.hints import Affine, example_weights_of, loss_weights_of
from fedparity.method.messages import Down


class Work(NamedTuple):
    """What the calling thread prepares for a lane before a worker begins with it."""

    start: Slotted | None = None
    """The received parameters ``[m, d]``, a view of one vector that nobody writes to."""
    room: Slotted | None = None
    """Where the lane writes its updates, ``[m, d]``."""
    batches: Batches | None = None
    """The batches of the lane's steps; None where they are planned by it, or full."""


class Stack(Measuring):
    """A lane of ``m`` clients, whose batches are padded to the largest.

    It runs on the thread of one worker. It overwrites its own parameters, the room that it is given
    for updates, and its buffer for the inputs of a batch; of the worker's module it sets the mode,
    and lifting swaps the parameters inside it during a forward pass.
    """

    def __init__(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        facts: Facts | None = None,
        chain: Chain | None = None,
        work: Work | None = None,
    ) -> None:
        """Make the lane of these clients; what is missing of ``work`` is made here."""
        start, room, batches = Work() if work is None else work
        if start is None:
            start = Slotted.of(setup.layout, down.x.expand(len(clients), -1))
        self.layout, self.algorithm, self.solver = setup.layout, setup.algorithm, setup.solver
        self.setup, self.clients, self._pooled, self.chain = setup, clients, facts, chain
        self.data, self.progress = setup.federation.train, setup.progress(down)
        sizes = self.data.sizes[clients]
        lengths = setup.lengths(clients)
        self.longest = int(lengths.max())
        device = start.flat.device
        self.n = torch.from_numpy(sizes).to(device)
        self.steps = torch.from_numpy(lengths).to(device)
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
        """Tell whether some batch, of clients with ``sizes [m]`` examples, would be padded."""
        if self._batches is None:
            return bool((sizes != sizes[0]).any())
        return self._batches.partial

    @cached_property
    def seed(self) -> Tensor:
        seeds = as_tensor(self.setup.seeds(self._round, self.clients, "client"))
        return seeds.to(self._start.flat.device)

    def spread(self, x: Tensor) -> Tensor:
        return self._start.flat if x is self._round.x else x.expand(len(self.clients), -1)

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return vmap(function)

    def running(self, step: int) -> Tensor | None:
        return (self.steps > step)[:, None] if self._uneven else None

    def begin(self, y: Tensor, buffers: Tensor) -> None:
        self._anchor = y
        self._buffers = buffers.expand(len(self.clients), -1)
        self._before = self._start.pieces
        if y is not self._start.flat:
            self._before = tuple(self.layout.views(y))
        pieces = self._before
        # A chain's first step makes the clients' own parameters.
        self._own = self.chain is None
        if self._own:
            self.setup.module.train()
            pieces = tuple(p.clone(memory_format=torch.contiguous_format) for p in pieces)
        self._slots = self._leaves(pieces)

    def read(self) -> Tensor:
        return self.layout.join(self._slots, torch.Size([len(self.clients)])).detach()

    @torch.no_grad()
    def update(self) -> Tensor:
        room = self._room
        if room is None:
            room = Slotted.of(self.layout, torch.empty_like(self._anchor))
        for slot, before, out in zip(self._slots, self._before, room.pieces, strict=True):
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
            inputs, target, share = self.batch(step)
            batch = inputs, target, self._weighed(share, target, correction.scale, step, rule)
            self._slots = self.chain.step(self._slots, *batch, rule.lr, self._own, keep)
            self._own = True
        else:
            gradient, _ = self._gradient(self._slots, step, rule, correction.scale)
            take_step(self._slots, gradient, rule.lr, keep)
        if self._shift:
            self._add_shift()

    def _step_by_slot(self, step: int, rule: Rule, correction: BySlot) -> None:
        """Take a step along a gradient that is stored and corrected slot by slot.

        Of a chain, whose parameters may be those that all clients share, the result overwrites the
        gradient; else the lane's parameters.
        """
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
        """Return the pieces ``[m, *shape]`` as leaves of autograd; of a chain, as they are."""
        if self.chain is not None:
            return tuple(pieces)
        return tuple(piece.detach().requires_grad_() for piece in pieces)

    def end(self) -> Tensor:
        return self._buffers

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs and targets ``[m, B, ...]`` of a step, and each example's share ``[m, B]``.

        The inputs are overwritten by the next step's.
        """
        if self._batches is None:  # a full batch
            return self._whole
        return self._batches.at(step, self._inputs)

    @cached_property
    def _inputs(self) -> Tensor:
        """A buffer for the inputs of a batch, overwritten at every step."""
        assert self._batches is not None
        return self._batches.room()

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor, Tensor]:
        """What :meth:`batch` returns where every batch is full: padded once, for all steps."""
        longest = int(self.data.sizes[self.clients].max())
        inputs, target, mask = padded(self.data, self.clients, 0, longest)
        flat = self._start.flat
        return inputs, target, weights_of(target.shape[:2], mask, flat.dtype, flat.device)

    def _groups(self, step: int) -> dict[str, Tensor]:
        """Return the groups ``[m, B]`` of a step's examples, of the kinds that parts go by."""
        if not self.algorithm.group_kinds:
            return {}
        if self._batches is not None:
            return self.setup.groups_at(self._batches.places(step))
        longest = int(self.data.sizes[self.clients].max())
        return self.setup.groups_at(places(self.data, self.clients, 0, longest)[0])

    def _gradient(
        self, leaves: Pieces, step: int, rule: Rule, scale: Tensor | float = 1.0
    ) -> tuple[Pieces, Tensor]:
        """Return the gradient ``[m, *shape]`` by slot, times ``scale``, and that of ``second``.

        The second one is ``[m, d]``, or ``[m, 0]``. ``scale`` is a number for all or ``[m]``. Hooks
        see the shares that the examples have in the mean, whatever the scale. The lane's buffers
        become those after the forward pass.
        """
        inputs, target, share = self.batch(step)
        none = leaves[0].new_zeros(len(self.clients), 0)
        if self.chain is not None:
            weighed = self._weighed(share, target, scale, step, rule)
            return self.chain.gradient(leaves, inputs, target, weighed), none
        scaled = _scaled(share, scale)
        if rule.having("examples"):
            return self._by_example(leaves, inputs, target, scaled, step, rule), none
        output, after = vmap(self._forward)(self._named(leaves), self._buffers, inputs)
        losses = self._losses(output, target)
        if rule.having("loss"):
            known = self._named(leaves), self._buffers, losses, output, target, inputs, share
            losses = vmap(self._hooked(step, rule))(rule.tree, *known, self._groups(step))
        second = self._second(losses, leaves, share, step, rule) if rule.having("second") else none
        if after.shape[1]:
            running = self.running(step)
            kept = self._buffers
            self._buffers = after if running is None else torch.where(running, after, kept)
        return gradient_of(losses, leaves, scaled), second

    def _weighed(
        self, share: Tensor, target: Tensor, scale: Tensor | float, step: int, rule: Rule
    ) -> Share:
        """Return the factor ``[m, B]`` of each example's loss in the sum that a chain descends."""
        parts = rule.having("loss")
        if parts and (own := example_weights_of(parts[0])) is not None:
            known = {"step": step, "share": share, "groups": self._groups(step)}
            each = own(target, rule.view(parts[0], "loss", rule.tree, **known))
            return _scaled(share * each.to(share.dtype), scale)
        weights = loss_weights_of(parts[0]) if parts else None
        if weights is None:
            return _scaled(share, scale)

        def weighed(output: Tensor, target: Tensor) -> Tensor:
            if self.chain is not None and self.chain.as_it_lies:  # losses are found faster so
                output = output.movedim(-1, 0).contiguous().movedim(0, -1)
            return _scaled(weights(self._losses(output, target), share), scale)

        return weighed

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
        """Return the gradient ``[m, *shape]`` by slot: the mean of the examples' changed ones."""
        task, module, layout = self.setup.task, self.setup.module, self.layout

        def one(
            tree: Tree, named: dict[str, Tensor], inputs: Tensor, target: Tensor, share: Tensor
        ) -> Tensor:
            each = example_gradients(task, module, layout, named, inputs, target)
            return share @ rule.examples(tree, each, step)

        named = {name: leaf.detach() for name, leaf in self._named(leaves).items()}
        found: Tensor = vmap(one)(rule.tree, named, inputs, target, share)
        return tuple(layout.views(found))

    def _hooked(self, step: int, rule: Rule) -> Callable[..., Tensor]:
        """Return one client's losses ``[B]`` as the parts change them, as a function to lift."""

        def hooked(
            tree: Tree,
            parameters: dict[str, Tensor],
            buffers: Tensor,
            losses: Tensor,
            output: Tensor,
            target: Tensor,
            inputs: Tensor,
            share: Tensor,
            groups: dict[str, Tensor],
        ) -> Tensor:
            def predict(other: Tensor) -> Tensor:
                return self._forward(parameters, buffers, other)[0]

            batch = {
                "inputs": inputs,
                "share": share,
                "predict": predict,
                "augment": self.setup.task.augment,
                "groups": groups,
            }
            return rule.losses(tree, losses, output, target, batch, step)

        return hooked


def _scaled(share: Tensor, scale: Tensor | float) -> Tensor:
    """Return shares ``[m, B]`` times a number for all or one a client."""
    if isinstance(scale, Tensor):
        return share * (scale[:, None] if scale.dim() else scale)
    return share if scale == 1.0 else share * scale
