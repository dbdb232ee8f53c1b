"""Loss, metrics and outputs of examples at a model, block by block, and their means a client.

Any worker may call these functions, each with a model of its own: they put it into eval mode and
write to nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedparity.data import Federation, Split
from fedparity.learning.device import wide
from fedparity.learning.frozen import Still
from fedparity.learning.task import Task
from fedparity.metrics import Metric, base_accuracy, base_loss, value_of

Values = dict[str, npt.NDArray[np.float64]]
OUTPUT = "output"
"""Under which name outputs stand beside loss and metrics."""
EVALUATION_BLOCK = 1 << 22
"""Input numbers in one block of a pass: keeps the activations in cache and memory bounded."""


def mixes_examples(module: nn.Module) -> bool:
    """Tell whether an example's output depends on the others of its batch (BatchNorm)."""
    layers = (layer for layer in module.modules() if not isinstance(layer, Still))
    return any(isinstance(layer, _NormBase) for layer in layers)


def block_rows(x: Tensor, numbers: int = EVALUATION_BLOCK, most: int = 8192) -> int:
    """Return how many of the examples ``x [N, ...]`` make a block of so many input numbers."""
    return max(64, min(most, numbers // max(1, x[0].numel())))


def blocks(x: Tensor) -> list[slice]:
    """Return the rows of a pass over ``x [N, ...]``, block after block."""
    rows = block_rows(x) if len(x) else 1
    return [slice(start, start + rows) for start in range(0, len(x), rows)]


@torch.inference_mode()
def evaluate_block(
    task: Task, module: nn.Module, x: Tensor, y: Tensor, outputs: bool = False
) -> dict[str, Tensor]:
    """Return loss and metrics of every example of one block, ``[B]`` each.

    With ``outputs`` also what the model says of each, as ``output`` ``[B, ...]`` in float64.
    """
    module.eval()
    return evaluated(task, module(x), y, outputs)


def evaluated(task: Task, output: Tensor, y: Tensor, outputs: bool = False) -> dict[str, Tensor]:
    """Return what :func:`evaluate_block` does, given the model's output ``[B, ...]``."""
    found = {"loss": task.losses(output, y), **task.metrics(output, y)}
    return {**found, OUTPUT: task.predictions(output.to(wide(output.device)))} if outputs else found


@torch.inference_mode()
def outputs_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the model's output on every example, ``[N, ...]``, block after block."""
    module.eval()
    return torch.cat([module(x[rows]) for rows in blocks(x)])


@torch.inference_mode()
def losses_block(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of every example of one block, ``[B]``."""
    module.eval()
    return task.losses(module(x), y)


def losses(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of every example, ``[N]``, block after block."""
    found = [losses_block(task, module, x[rows], y[rows]) for rows in blocks(x)]
    return torch.cat(found) if found else torch.zeros(0)


def evaluate_each(
    task: Task, module: nn.Module, x: Tensor, y: Tensor, outputs: bool = False
) -> dict[str, Tensor]:
    """Return loss and metrics of every example, ``[N]`` each, block after block."""
    return joined([evaluate_block(task, module, x[rows], y[rows], outputs) for rows in blocks(x)])


def joined(found: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the values ``[B, ...]`` of several blocks as one, ``[N, ...]``."""
    return {key: torch.cat([block[key] for block in found]) for key in found[0]} if found else {}


def by_client(values: dict[str, Tensor], split: Split) -> Values:
    """Return the mean ``[K]`` of every value ``[N]`` a client; NaN where one has no example."""
    sizes, owner = split.sizes, split.owner.numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            key: np.bincount(owner, weights=value.double().numpy(), minlength=len(sizes)) / sizes
            for key, value in values.items()
        }


def of_clients(
    metrics: Sequence[Metric], output: Tensor, split: Split, clients: Sequence[int] | None = None
) -> Values:
    """Return the metrics ``[K]`` that need all outputs of a client; NaN where there are none.

    Parameters
    ----------
    metrics
        The metrics.
    output
        What the model says of the examples, client after client, ``[N, ...]``.
    split
        Where the examples are.
    clients
        Whose they are; by default everyone's.
    """
    said, target = output.numpy(), split.y.numpy()
    everyone = range(len(split.sizes)) if clients is None else clients
    found = {metric.name: np.full(len(everyone), np.nan) for metric in metrics}
    start = 0
    for row, client in enumerate(everyone):
        first, last = int(split.offsets[client]), int(split.offsets[client + 1])
        own = said[start : start + last - first]
        start += len(own)
        for metric in metrics:
            found[metric.name][row] = value_of(metric, target[first:last], own)
    return found


def base_of(task: Task, federation: Federation, split: Split) -> Values:
    """Return what a guess without inputs gets of every client, where the task has such a base."""
    if task.base == "accuracy" and federation.kind == "classes":
        return {"accuracy": base_accuracy(federation.train, split, federation.outputs)}
    return {"loss": base_loss(federation.train, split)} if task.base == "loss" else {}
