"""Loss and metrics of the shared model on all clients: one batched pass, summed by client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedparity.data import Split
from fedparity.learning.task import Task

Values = dict[str, npt.NDArray[np.float64]]
BLOCK = 1 << 22
"""Input numbers in one block of a pass: keeps the activations in cache and memory bounded."""


def mixes_examples(module: nn.Module) -> bool:
    """Tell whether an example's output depends on the others of its batch (BatchNorm)."""
    return any(isinstance(layer, _NormBase) for layer in module.modules())


def block_rows(x: Tensor, numbers: int = BLOCK, most: int = 8192) -> int:
    """Return how many of these examples make a block of so many input numbers."""
    return max(64, min(most, numbers // max(1, x[0].numel())))


def blocks(x: Tensor) -> list[slice]:
    """Return the rows of a pass, block after block."""
    rows = block_rows(x) if len(x) else 1
    return [slice(start, start + rows) for start in range(0, len(x), rows)]


@torch.inference_mode()
def measure_block(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return loss and metrics of every example of one block, ``[B]`` each."""
    module.eval()
    output = module(x)
    return {"loss": task.losses(output, y), **task.metrics(output, y)}


@torch.inference_mode()
def losses_block(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of every example of one block, ``[B]``."""
    module.eval()
    return task.losses(module(x), y)


def losses(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of every example, ``[N]``, block after block."""
    found = [losses_block(task, module, x[rows], y[rows]) for rows in blocks(x)]
    return torch.cat(found) if found else torch.zeros(0)


def measure(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return loss and metrics of every example, ``[N]`` each, block after block."""
    return joined([measure_block(task, module, x[rows], y[rows]) for rows in blocks(x)])


def joined(found: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the values of several blocks as one."""
    return {key: torch.cat([block[key] for block in found]) for key in found[0]} if found else {}


def by_client(values: dict[str, Tensor], split: Split) -> Values:
    """Return the mean of every value a client; NaN where a client has no example."""
    sizes, owner = split.sizes, split.owner.numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            key: np.bincount(owner, weights=value.double().numpy(), minlength=len(sizes)) / sizes
            for key, value in values.items()
        }
