"""Gradients of single examples, for methods that bound or change each by itself.

They are computed on the thread of the calling worker, with its model; nothing is written to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedparity.learning.layout import Layout
from fedparity.learning.task import Task


def example_gradients(
    task: Task,
    module: nn.Module,
    layout: Layout,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    target: Tensor,
) -> Tensor:
    """Return the gradient of every example's loss, ``[B, d]``, of one client.

    ``inputs`` and ``target`` are ``[B, ...]``; ``parameters`` have the shapes of the layout.
    Layers that draw random numbers draw for each example by itself.
    """
    if not len(inputs):
        return next(iter(parameters.values())).new_zeros(0, layout.size)

    def loss(parameters: dict[str, Tensor], one: Tensor, wanted: Tensor) -> Tensor:
        output = functional_call(module, parameters, (one[None],))
        return task.losses(output, wanted[None])[0]

    found = vmap(grad(loss), (None, 0, 0), randomness="different")(parameters, inputs, target)
    return layout.join([found[slot.name] for slot in layout.slots], torch.Size([len(inputs)]))
