"""Clients on an accelerator: what they read, train and keep for a round is there.

The engine behind it is the same as on the processor. The server stays on the host, where many parts
work in numpy: of every exchange, what is sent goes there, and what is answered comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedparity.data import Split
from fedparity.engines.engine import Engine, Ids, Setup
from fedparity.engines.evaluation import Values
from fedparity.learning.device import wide
from fedparity.learning.layout import Layout
from fedparity.method.messages import Down, Named, Own, Tensors, Up

T = TypeVar("T")
SPLITS = ("train", "validation", "test")


class DeviceEngine(Engine):
    """An engine whose tensors are on a device, behind a door whose tensors are on the host.

    Shapes are those of :class:`~fedparity.engines.engine.Engine`. Everything runs on the calling
    thread, which waits for the device; what is given is copied there and never written to.
    """

    def __init__(self, setup: Setup, make: Callable[[Setup], Engine]) -> None:
        super().__init__(setup)
        self.device = torch.device(setup.device)
        with self.device:  # tensors that parts and layers make of nothing belong there too
            self.there = make(moved(setup))
        self.name = self.there.name

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        with self.device:
            sent, own, kept = self._sent(down), self._there(buffers), self._tree(states)
            if buffers is down.buffers:  # engines tell by it that all start alike
                own = sent.buffers
            up = self.there.ask(sent, clients, own, kept)
        sums = None if up.sums is None else home(up.sums)
        if up.deltas is None or up.buffers is None:
            return Up(_tree_home(up.reports), sums=sums)
        states = _tree_home(up.states)
        return Up(_tree_home(up.reports), home(up.deltas), home(up.buffers), states, sums)

    def personal(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Own:
        with self.device:
            own = self.there.personal(
                self._sent(down), clients, self._there(buffers), self._tree(states)
            )
        shares = None if own.shares is None else home(own.shares)
        return Own(home(own.parameters), home(own.buffers), shares)

    def evaluate_each(
        self, x: Tensor, buffers: Tensor, split: Split, outputs: bool = False
    ) -> dict[str, Tensor]:
        with self.device:
            found = self.there.evaluate_each(
                self._there(x), self._there(buffers), self._split(split), outputs
            )
        return {name: home(value) for name, value in found.items()}

    def evaluate_each_own(self, split: Split, clients: Ids, own: Own) -> dict[str, Tensor]:
        with self.device:
            found = self.there.evaluate_each_own(self._split(split), clients, self._own(own))
        return {name: home(value) for name, value in found.items()}

    def evaluate_own(self, split: str, clients: Ids, own: Own) -> Values:
        with self.device:
            return self.there.evaluate_own(split, clients, self._own(own))

    def at_modules(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]:
        with self.device:
            return self.there.at_modules(count, one, self._there(x), self._there(buffers))

    def close(self) -> None:
        self.there.close()

    def _there(self, tensor: Tensor) -> Tensor:
        kind = wide(self.device) if tensor.dtype is torch.float64 else tensor.dtype
        return tensor.to(self.device, kind)

    def _tree(self, tree: Named) -> Named:
        return {part: self._tensors(tensors) for part, tensors in tree.items()}

    def _tensors(self, tensors: Tensors) -> dict[str, Tensor]:
        return {name: self._there(value) for name, value in tensors.items()}

    def _sent(self, down: Down) -> Down:
        return replace(
            down,
            x=self._there(down.x),
            buffers=self._there(down.buffers),
            shared={part: self._tensors(sent) for part, sent in down.shared.items()},
            each={part: self._tensors(sent) for part, sent in down.each.items()},
        )

    def _own(self, own: Own) -> Own:
        shares = None if own.shares is None else self._there(own.shares)
        return Own(self._there(own.parameters), self._there(own.buffers), shares)

    def _split(self, split: Split) -> Split:
        """Return a split's examples on the device, where those of the federation are already."""
        for name in SPLITS:
            if split is getattr(self.setup.federation, name):
                found: Split = getattr(self.there.setup.federation, name)
                return found
        return split.on(self.device)


def moved(setup: Setup) -> Setup:
    """Return the same with data, model and all that is known of clients on its device."""
    device = torch.device(setup.device)
    module = _moved(setup.module, device)
    found = replace(
        setup,
        federation=setup.federation.on(device),
        module=module,
        layout=Layout(module),
        lstar=None if setup.lstar is None else setup.lstar.to(device),
    )
    if "label_counts" in setup.algorithm.train_reads | setup.algorithm.probe_reads:
        vars(found)["label_counts"] = setup.label_counts.to(device)  # counted once, on the host
    return found


def _moved(module: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy of a model on a device, with the parameters that it shares shared."""
    made, seen = copy.deepcopy(module), dict[int, nn.Parameter]()
    for layer in made.modules():
        for name, parameter in layer._parameters.items():
            if parameter is not None:
                there = nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
                layer._parameters[name] = seen.setdefault(id(parameter), there)
        for name, buffer in layer._buffers.items():
            if buffer is not None:
                layer._buffers[name] = buffer.to(device)
    return made


def home(tensor: Tensor) -> Tensor:
    """Return a tensor on the host, of the same shape."""
    return tensor.cpu()


def _tree_home(tree: Named) -> Named:
    return {part: {name: home(v) for name, v in tensors.items()} for part, tensors in tree.items()}
