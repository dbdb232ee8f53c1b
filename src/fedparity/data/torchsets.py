"""Torch datasets, one a client, stacked into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from fedparity.data import build
from fedparity.data.build import Parts
from fedparity.data.split import Ints
from fedparity.errors import InputError


def stacked(
    names: Sequence[str],
    train: Sequence[Any],
    validation: Sequence[Any] | None,
    test: Sequence[Any] | None,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Ints, Parts]:
    """Return inputs, targets, owner and part of all examples."""
    x, y, owner, part = [], [], [], []
    for code, sets in enumerate((train, validation, test)):
        if sets is None:
            continue
        if len(sets) != len(names):
            raise InputError(f"{len(sets)} {build.PARTS[code]} datasets for {len(names)} clients")
        for k, dataset in enumerate(sets):
            if len(dataset) == 0:
                continue
            inputs, targets = _examples(dataset, names[k])
            x.append(inputs)
            y.append(targets)
            owner.append(np.full(len(targets), k, dtype=np.int64))
            part.append(np.full(len(targets), code, dtype=np.int8))
    if not x:
        raise InputError("the datasets hold no example")
    shapes = {values.shape[1:] for values in x}
    if len(shapes) > 1:
        raise InputError(f"clients have inputs of different shapes: {sorted(shapes)}")
    return (
        build.inputs(np.concatenate(x)),
        np.concatenate(y),
        np.concatenate(owner),
        np.concatenate(part),
    )


def _examples(dataset: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if isinstance(dataset, TensorDataset):
        inputs, targets = dataset.tensors
        return build.array(inputs), build.array(targets)
    try:
        pairs = [dataset[i] for i in range(len(dataset))]
        inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs])
        targets = torch.stack([torch.as_tensor(y) for _, y in pairs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"the dataset of client '{name}' does not give (input, target) tensors of one shape: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return build.array(inputs), build.array(targets)
