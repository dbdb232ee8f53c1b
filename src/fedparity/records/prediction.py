"""A trained module put to use: from new inputs to classes, probabilities or values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from fedparity.data.inputs import packed_as
from fedparity.data.prepare import Preparation
from fedparity.engines.evaluation import blocks
from fedparity.errors import InputError
from fedparity.learning.task import Task
from fedparity.learning.unpacking import fields_of, unpacked

Output = npt.NDArray[Any]


def taking_what_was_given(module: nn.Module) -> nn.Module:
    """Return the module such that it takes numpy arrays, and numbers of any floating point type.

    A federation may hold float64 where the model computes in float32.
    """
    if not any(hook is _to_own_type for hook in module._forward_pre_hooks.values()):
        module.register_forward_pre_hook(_to_own_type)
    return module


def _to_own_type(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = next((p.dtype for p in module.parameters() if p.is_floating_point()), None)
    return tuple(_cast(value, kind) for value in given)


def _cast(value: Any, kind: torch.dtype | None) -> Any:
    if isinstance(value, dict):
        return {name: _cast(each, kind) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, Tensor) and value.is_floating_point() and kind is not None:
        return value.to(kind)
    return value


def inputs_of(
    x: Any,
    record: Mapping[str, Any],
    preparation: Preparation | None,
    clients: Sequence[str] | None,
) -> Tensor:
    """Return new inputs as a tensor of the shape that the model was trained with.

    Parameters
    ----------
    x
        A table like the one trained on, or the inputs themselves: an array or tensor ``[n, ...]``,
        a dict of such where the run was of one, or a table of numbers whose columns stand as in
        training where there is no preparation.
    record
        What the run recorded.
    preparation
        How columns become inputs, where the run was of a table.
    clients
        The client of each row of a table that was prepared client by client.
    """
    if isinstance(x, pd.DataFrame):
        if preparation is not None:
            return torch.from_numpy(preparation.apply(x, clients))
        odd = [str(name) for name in x if not pd.api.types.is_numeric_dtype(x[name])]
        if odd:
            raise InputError(
                f"column '{odd[0]}' is not numeric, and this run keeps no preparation of columns: "
                "a run of a table does (--data FILE, or Federation.from_frame)"
            )
    fields = fields_of(record.get("fields"))
    if isinstance(x, Mapping):
        if not fields:
            raise InputError("x is a dict, and the model reads one array of inputs")
        x = packed_as(x, fields)
    elif fields:
        named = ", ".join(f"'{field.name}'" for field in fields)
        raise InputError(f"the model reads several inputs: give a dict of {named}")
    values = x if isinstance(x, Tensor) else _numbers(x)
    shape = tuple(record["inputs"])
    if tuple(values.shape[1:]) != shape:
        raise InputError(
            f"inputs of shape {tuple(values.shape[1:])}, where the model was trained with {shape}: "
            "one row an example is expected, and all its inputs in the same order"
        )
    if values.is_floating_point() and not bool(values.isfinite().all()):
        raise InputError("an input is not finite: fill in missing values first")
    return values if record.get("whole_inputs") else values.double()


def _numbers(x: Any) -> Tensor:
    try:
        return torch.from_numpy(np.require(x, requirements="W"))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"x is a {type(x).__name__} that is no array of numbers: give a DataFrame, such as "
            "pandas.read_csv(file), or an array of one row an example"
        ) from error


@torch.inference_mode()
def predicted(module: nn.Module, task: Task, x: Tensor) -> Output:
    """Return what the module says of every input: probabilities of the classes, or values."""
    if not len(x):
        raise InputError("there are no inputs to predict from")
    taking_what_was_given(module).eval()
    said = [task.predictions(module(x[rows]).double()) for rows in blocks(x)]
    found: Output = torch.cat(said).numpy()
    return found


def example_of(record: Mapping[str, Any], module: nn.Module) -> Tensor | dict[str, Tensor]:
    """Return two inputs of zeros, of the kind that the module takes."""
    kind = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    dtype = torch.int64 if record.get("whole_inputs") else kind
    packed = torch.zeros(2, *record["inputs"], dtype=dtype)
    fields = fields_of(record.get("fields"))
    return unpacked(packed, fields) if fields else packed
