"""Models that read several tensors: their one packed input becomes a dict before they see it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Field(NamedTuple):
    """One tensor of an input: its name, the shape of one example, and whether it is whole numbers.

    Parameters
    ----------
    name
        Its key in the dict that the model is given.
    shape
        Without the dimension of examples.
    whole
        Whether the model is given int64; else floating point numbers.
    """

    name: str
    shape: tuple[int, ...]
    whole: bool


Fields = tuple[Field, ...]


def unpacked(x: Tensor, fields: Fields) -> dict[str, Tensor]:
    """Return one tensor ``[..., places]`` as the dict of tensors that a model is given."""
    found, start = {}, 0
    for field in fields:
        stop = start + math.prod(field.shape)
        piece = x[..., start:stop].reshape(*x.shape[:-1], *field.shape)
        found[field.name] = piece.to(torch.int64) if field.whole else piece
        start = stop
    return found


def unpacking(module: nn.Module, fields: Fields) -> nn.Module:
    """Return the module such that it takes its inputs packed; a dict is passed on as it is.

    The names of its parameters stay, so that patterns and files of weights fit as before.
    """
    if fields:
        module.register_forward_pre_hook(partial(_unpack, fields))
    return module


def _unpack(fields: Fields, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, *others = given
    return (unpacked(x, fields), *others) if isinstance(x, Tensor) else given


def shapes(fields: Fields, shape: tuple[int, ...]) -> Any:
    """Return the shape that a factory is given: of a packed input, that of each tensor by name."""
    return {field.name: field.shape for field in fields} if fields else shape


def fields_of(told: Any) -> Fields:
    """Return the fields that a run recorded."""
    return tuple(Field(str(n), tuple(map(int, s)), bool(w)) for n, s, w in told or ())
