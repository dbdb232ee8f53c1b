"""The passes over all examples of a lane of ``m`` clients: facts, full gradients, evaluation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from fedparity.data import Split
from fedparity.engines.engine import Ids
from fedparity.engines.evaluation import block_rows
from fedparity.engines.facts import AtRows, known_facts, per_example, right_of
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.lane import (
    Lane,
    Pieces,
    gradient_of,
)
from fedparity.engines.stacked.batches import Slotted, padded, places, summed
from fedparity.learning.device import wide
from fedparity.workers import Crew

Facts = dict[str, Tensor]


class Block(NamedTuple):
    """Examples ``start .. start + width`` of the clients ``who`` of a stack."""

    who: slice
    start: int
    width: int


class Measuring(Lane):
    """The verb ``measure`` of a lane of ``m`` clients.

    It is called on the thread of the worker that has the lane. It reads the data block by block,
    puts the worker's module into eval mode, and writes to no tensor that it is given.
    """

    clients: Ids
    data: Split
    """The training examples of all clients."""
    chain: Chain | None
    _start: Slotted
    """The received parameters ``[m, d]``."""
    _pooled: Facts | None
    """Facts ``[m, ...]`` at the received parameters, if these are measured already."""
    crew: Crew[Any] = Crew([None])
    """Who computes the blocks: here the thread that calls. Others read parameters and data only."""

    @abstractmethod
    def _leaves(self, pieces: Iterable[Tensor]) -> Pieces:
        """Return the pieces ``[m, *shape]`` as leaves of autograd; of a chain, as they are."""

    def _named(self, pieces: Pieces) -> dict[str, Tensor]:
        """Return pieces, one a slot, by the names of the slots."""
        return {slot.name: p for slot, p in zip(self.layout.slots, pieces, strict=True)}

    def _forward(
        self, parameters: dict[str, Tensor], buffers: Tensor, inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return one client's output ``[B, ...]`` and its buffers ``[b]`` after it.

        It is lifted over the stack, and keeps the mode that the module is in.
        """
        if not self.layout.buffers:
            return functional_call(self.setup.module, parameters, (inputs,)), buffers
        own = self.layout.buffer_tensors(buffers)
        output = functional_call(self.setup.module, {**parameters, **own}, (inputs,))
        return output, self.layout.pack_buffers(own, buffers)

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the losses ``[m, B]`` of outputs and targets ``[m, B, ...]``."""
        flat = self.setup.task.losses(output.flatten(0, 1), target.flatten(0, 1))
        return flat.view(target.shape[:2])

    def blocks(self, data: Split) -> list[Block]:
        """Return all examples of the clients in blocks, which bound memory and fit a cache."""
        longest = int(data.sizes[self.clients].max())
        width = block_rows(data.x) // len(self.clients) + 1 if longest else 1
        return [
            Block(slice(None), start, min(width, longest - start))
            for start in range(0, longest, width)
        ]

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
        if functions := per_example(self.setup, names - found.keys()):
            totals = self.own_sums("train", y, buffers, more=functions)
            for name in functions:
                total = totals[name]
                count = self.n.view(-1, *[1] * (total.dim() - 1))
                found[name] = (total / count).to(y.dtype)
        if "right" in names - found.keys():
            found["right"] = self._right(y, buffers)
        if "grad" in names:
            found["grad"] = self._full_gradient(y, buffers)
        return found

    def _validation_loss(self, y: Tensor, buffers: Tensor) -> Tensor:
        """Return the validation loss ``[m]``: training where a client has no such example."""
        own = self.setup.federation.validation.sizes[self.clients]
        sizes = torch.from_numpy(own).to(y.device)
        none = y.new_zeros(len(sizes), dtype=wide(y.device))
        value = self.own_sums("validation", y, buffers).get("loss", none) / sizes.clamp_min(1)
        if (own == 0).any():
            plain = self.own_sums("train", y, buffers)["loss"] / self.n
            value = torch.where(sizes > 0, value, plain)
        return value.to(y.dtype)

    @torch.no_grad()
    def _right(self, y: Tensor, buffers: Tensor) -> Tensor:
        """Return how right each example is, ``[m, longest]``, 0 behind a client's last one."""
        self.setup.module.eval()
        right = {"right": right_of(self.setup.task)}
        found = y.new_zeros(len(self.clients), self.setup.most_examples)
        for who, start, width in self.blocks(self.data):
            inputs, target, mask = padded(self.data, self.clients[who], start, width)
            at, _ = places(self.data, self.clients[who], start, width)
            seen = y[who], buffers[who], inputs, target, False, right, None, at
            each = self._of_block(*seen)["right"]
            found[who, start : start + width] = each if mask is None else each * mask
        return found

    def _full_gradient(self, y: Tensor, buffers: Tensor) -> Tensor:
        """Return the gradient ``[m, d]`` of the training loss as the algorithm judges it."""
        self.setup.module.eval()
        leaves = self._leaves(self.layout.views(y))
        return self.layout.join(self.gradient_by_blocks(leaves, buffers), y.shape[:1])

    def gradient_by_blocks(
        self, leaves: Pieces, buffers: Tensor, scale: Tensor | float = 1.0
    ) -> Pieces:
        """Return the gradient ``[m, *shape]`` by slot of each client's mean loss over its examples.

        The loss is as the algorithm judges it. Times ``scale``, a number for all or ``[m]``. The
        workers of ``crew`` compute the blocks; the calling thread adds them, in order, to tensors
        of its own, which it returns.
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
        more: dict[str, AtRows] | None = None,
        shares: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return sums ``[m, ...]`` over each client's examples at its own ``y [m, d]``, in float64.

        These are sums of loss and metrics, or of the functions ``more`` of losses, outputs and
        targets. With ``shares [m, M]`` the parameters are ``[m, M, d]``, whose predictions are
        mixed. Where a device has no float64, sums are in its widest type.
        """
        self.setup.module.eval()
        data: Split = getattr(self.setup.federation, split)
        work = self.blocks(data)

        def one(block: int, _: object) -> dict[str, Tensor]:
            who, *rows = work[block]
            inputs, target, mask = padded(data, self.clients[who], *rows)
            mixing = None if shares is None else shares[who]
            at = None if more is None else places(data, self.clients[who], *rows)[0]
            found = self._of_block(y[who], buffers[who], inputs, target, judged, more, mixing, at)
            shape = target.shape[:2]
            each = {k: v if v.dim() > 1 else v.view(shape) for k, v in found.items()}
            return {key: summed(value.to(wide(value.device)), mask) for key, value in each.items()}

        sums: dict[str, Tensor] = {}
        for block, found in zip(work, self.crew.stream(len(work), one), strict=True):
            for key, value in found.items():
                rest = value.shape[1:]
                total = sums.setdefault(key, value.new_zeros(len(self.clients), *rest))
                total[block.who] += value
        return sums

    def _of_block(
        self,
        y: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        target: Tensor,
        judged: bool,
        more: dict[str, AtRows] | None,
        shares: Tensor | None,
        rows: Tensor | None,
    ) -> dict[str, Tensor]:
        """Return loss and metrics, or the functions ``more``, of a block's examples.

        ``rows [m, B]`` are their places in the split, which the functions are given. Values are
        ``[m, B, ...]``, or the same flat, ``[m * B]``.
        """
        if shares is None:
            output = self._outputs(y, buffers, inputs)
        else:
            each = torch.stack([self._outputs(one, buffers, inputs) for one in y.unbind(1)])
            output = self.setup.task.mixed(each, shares.T)
        flat, wanted = output.flatten(0, 1).contiguous(), target.flatten(0, 1)
        found = {"loss": self.setup.task.losses(flat, wanted)}
        if more is not None:
            assert rows is not None
            at = rows.flatten()
            made = {name: f(found["loss"], flat, wanted, at) for name, f in more.items()}
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
        """Return one client's output ``[B, ...]``; its buffers stay as they are."""
        tensors = {**self.layout.parameters(y), **self.layout.buffer_tensors(buffers)}
        output: Tensor = functional_call(self.setup.module, tensors, (inputs,))
        return output
