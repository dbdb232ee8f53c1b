"""A device that is not there: its tensors hold numbers, and meet no tensor of the processor.

It goes by torch's name ``meta``, of a device without memory, for which autograd and lifting work
with any torch; a torch without CUDA has no autograd on pretended ``cuda`` tensors. What is computed
there is computed by the processor, so that results can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedparity.engines.stacked.batches import even_weights
from fedparity.learning import device

NAME = "meta"
aten = torch.ops.aten
TRANSFERS = {aten.copy_.default, aten._to_copy.default, aten.index.Tensor, aten.index_put_.default}
"""Operations that take tensors of two devices; of an index the processor may have the places."""


class StrayError(Exception):
    """A tensor of the processor met one of the device."""


class There(Tensor):
    """A tensor of the device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> There:
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=NAME
        )
        if held.dtype is torch.float64 and NAME in device.WITHOUT_FLOAT64:
            raise StrayError("the device has no float64")
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Sees what makes a tensor of nothing, too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


def computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an operation where its tensors are; one of both places is refused."""
    values = [*_leaves(args), *_leaves(kwargs.values())]
    there = any(isinstance(value, There) for value in values)
    devices = [value.type for value in values if isinstance(value, torch.device)]
    wanted = devices[0] if devices else NAME if there else "cpu"
    if not there and wanted == "cpu":
        return func(*args, **kwargs)
    if there and func not in TRANSFERS:
        for value in values:
            if isinstance(value, Tensor) and not isinstance(value, There) and value.dim():
                raise StrayError(f"{func}: a tensor {tuple(value.shape)} is on the processor")
    with torch.inference_mode(False):  # in which no tensor of Python's own can be made
        found = func(*_held(args), **{name: _held(value) for name, value in kwargs.items()})
        for place, name in _written(func):
            given = args[place] if place < len(args) else kwargs.get(name)
            if given is not None:
                return given if isinstance(found, Tensor) else found
        return _there(found) if wanted == NAME else found


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Return places and names of what an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [(i, a.name) for i, a in arguments if a.alias_info and a.alias_info.is_write]


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def _held(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_held, value))
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.held if isinstance(value, There) else value


def _there(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_there, value))
    return There(value) if isinstance(value, Tensor) else value


@contextmanager
def pretended(float64: bool = True) -> Iterator[str]:
    """Let torch have the device, whose name this gives."""
    own = SimpleNamespace(
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        manual_seed=torch.default_generator.manual_seed,
    )
    with pytest.MonkeyPatch.context() as patch, _Everywhere():
        patch.setattr(torch, NAME, own, raising=False)
        if not float64:
            patch.setattr(device, "WITHOUT_FLOAT64", frozenset({NAME}))
        yield NAME
    even_weights.cache_clear()
