"""The model as a vector: which slice of ``x`` is which tensor of the module.

Trainable parameters are one flat tensor ``x`` of length ``d``, frozen ones stay in the module and
are neither changed nor sent; buffers (BatchNorm statistics) are a
second one, in the same floating type, whose counters are cast back to integers when used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedparity.errors import InputError, unknown
from fedparity.learning.frozen import moving, trainable

Layers = int | tuple[int, ...] | tuple[str, ...]
"""Layers of a model: how many of the last ones, or their places, or their names."""


@dataclass(frozen=True)
class Slot:
    """One tensor of the module and its place in the flat vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    dtype: torch.dtype
    normalises: bool
    """Whether the owner is a BatchNorm-like layer (by type, not by name)."""

    @property
    def layer(self) -> str:
        """Name of the module that owns the tensor."""
        return self.name.rpartition(".")[0]


class Layout:
    """Names, shapes and places of a module's parameters and buffers.

    Examples
    --------
    >>> layout = Layout(nn.Linear(3, 2))
    >>> layout.size, [(slot.name, slot.start, slot.stop) for slot in layout.slots]
    (8, [('weight', 0, 6), ('bias', 6, 8)])
    """

    def __init__(self, module: nn.Module) -> None:
        normalises = {
            f"{name}.{own}" if name else own
            for name, owner in module.named_modules()
            if isinstance(owner, _NormBase)
            for own in [*owner._parameters, *owner._buffers]
        }
        self.slots = _slots(trainable(module), normalises)
        self.buffers = _slots(moving(module), normalises)
        if not self.slots:
            raise InputError("the model has no trainable parameter")
        self.size = self.slots[-1].stop
        self.buffer_size = self.buffers[-1].stop if self.buffers else 0
        self._sizes = [slot.stop - slot.start for slot in self.slots]
        self._buffer_sizes = [slot.stop - slot.start for slot in self.buffers]
        self._counters = _mask(self.buffers, [not s.dtype.is_floating_point for s in self.buffers])
        self._normalisation = _mask(self.slots, [slot.normalises for slot in self.slots])
        self._tails: dict[int | tuple[str, ...], int] = {}
        self._masks: dict[Layers, tuple[Tensor, int]] = {}

    def parameters(self, x: Tensor) -> dict[str, Tensor]:
        """Return the named tensors of ``x``, as views (``split``: its backward is one ``cat``)."""
        return {
            slot.name: piece.view(slot.shape)
            for slot, piece in zip(self.slots, torch.split(x, self._sizes), strict=True)
        }

    def views(self, y: Tensor) -> list[Tensor]:
        """Return the tensors of ``y``, ``[..., d]``, as views ``[..., *shape]``, slot by slot."""
        pieces, lead = y.split_with_sizes(self._sizes, -1), y.shape[:-1]
        return [
            piece.view(lead + slot.shape) for slot, piece in zip(self.slots, pieces, strict=True)
        ]

    def join(self, pieces: Sequence[Tensor], lead: torch.Size) -> Tensor:
        """Return tensors slot by slot, ``[*lead, *shape]`` each, as one ``[*lead, d]``."""
        return torch.cat([piece.reshape(*lead, -1) for piece in pieces], -1)

    def buffer_tensors(self, b: Tensor) -> dict[str, Tensor]:
        """Return the named buffers of the flat vector ``b``, each in its own dtype, as copies."""
        return {
            slot.name: piece.reshape(slot.shape).to(slot.dtype, copy=True)
            for slot, piece in zip(self.buffers, torch.split(b, self._buffer_sizes), strict=True)
        }

    def pack_buffers(self, tensors: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the flat vector of named buffers, in the floating type of ``like``."""
        return torch.cat([tensors[slot.name].reshape(-1).to(like.dtype) for slot in self.buffers])

    def read(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        """Return the flat parameters and buffers of a module, as copies."""
        x = torch.cat([p.detach().reshape(-1) for _, p in trainable(module)])
        if not self.buffers:
            return x, x.new_zeros(0)
        return x, self.pack_buffers(dict(module.named_buffers()), x)

    @torch.no_grad()
    def write(self, module: nn.Module, x: Tensor, b: Tensor | None = None) -> nn.Module:
        """Copy the vectors into the module and return it."""
        tensors = self.parameters(x)
        for name, parameter in trainable(module):
            parameter.copy_(tensors[name])
        if b is not None and self.buffers:
            buffers = self.buffer_tensors(b)
            for name, buffer in moving(module):
                buffer.copy_(buffers[name])
        return module

    def counters(self) -> Tensor:
        """Return the mask of the buffer vector that marks integer counters."""
        return self._counters

    def normalisation(self) -> Tensor:
        """Return the mask of ``x`` that marks the parameters of BatchNorm-like layers."""
        return self._normalisation

    @property
    def layers(self) -> list[str]:
        """Names of the modules that own parameters, in the order of the vector."""
        return list(dict.fromkeys(slot.layer for slot in self.slots))

    def mask(self, layers: Layers) -> Tensor:
        """Return the mask of ``x`` that marks these layers.

        A place counts from the first layer, 0, or if negative from behind.
        """
        return self._masked(layers)[0]

    def places(self, layers: Layers) -> list[int]:
        """Return the places of the slots of these layers."""
        chosen = self._chosen(layers)
        return [place for place, slot in enumerate(self.slots) if slot.layer in chosen]

    def first(self, layers: Layers) -> int:
        """Return the index in ``x`` where the first of these layers begins; its size if none is."""
        return self._masked(layers)[1]

    def _masked(self, layers: Layers) -> tuple[Tensor, int]:
        if layers not in self._masks:
            marked = [slot.layer in self._chosen(layers) for slot in self.slots]
            starts = (slot.start for slot, mark in zip(self.slots, marked, strict=True) if mark)
            self._masks[layers] = _mask(self.slots, marked), min(starts, default=self.size)
        return self._masks[layers]

    def _chosen(self, layers: Layers) -> list[str]:
        names = self.layers
        if isinstance(layers, int):
            if layers > len(names):
                raise InputError(f"the last {layers} layers of a model that has {len(names)}")
            return names[len(names) - layers :]
        chosen = []
        for layer in layers:
            if isinstance(layer, int):
                if not -len(names) <= layer < len(names):
                    raise InputError(f"layer {layer} of a model that has {len(names)}, from 0 on")
                chosen.append(names[layer])
            elif layer in names:
                chosen.append(layer)
            else:
                raise unknown("layer", layer, names)
        return chosen

    def tail(self, layers: int | tuple[str, ...]) -> int:
        """Return the index where the last ``layers`` (a count, or their names) begin in ``x``."""
        if layers not in self._tails:
            self._tails[layers] = self._tail(layers)
        return self._tails[layers]

    def _tail(self, layers: int | tuple[str, ...]) -> int:
        chosen, names = self._chosen(layers), self.layers
        last = names[len(names) - len(chosen) :]
        if set(chosen) != set(last):
            raise InputError(
                f"layers {', '.join(chosen)} are not the last ones; these are {', '.join(last)}"
            )
        return min((s.start for s in self.slots if s.layer in chosen), default=self.size)


def _mask(slots: list[Slot], marked: list[bool]) -> Tensor:
    mask = torch.zeros(slots[-1].stop if slots else 0, dtype=torch.bool)
    for slot, mark in zip(slots, marked, strict=True):
        mask[slot.start : slot.stop] = mark
    return mask


def _slots(named: Iterable[tuple[str, Tensor]], normalises: set[str]) -> list[Slot]:
    slots: list[Slot] = []
    start = 0
    for name, tensor in named:
        stop = start + tensor.numel()
        slots.append(Slot(name, tensor.shape, start, stop, tensor.dtype, name in normalises))
        start = stop
    return slots
