"""How a worker's copy of the model is arranged in memory: the same numbers, faster.

The functions that change a model overwrite the one that they are given, which is a worker's copy.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedparity.engines.engine import altered

POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
"""Layers that give the largest number of every window."""


def suits_channels_last(module: nn.Module, inputs: Tensor) -> bool:
    """Tell whether a model convolves images and takes them channels last.

    One that reshapes with ``view`` does not: its numbers do not lie as it expects. GroupNorm is
    slower so than convolutions gain (ResNet-18: 4 % of the processor's time).
    """
    convolves, by_group = (
        any(isinstance(layer, kind) for layer in module.modules())
        for kind in (nn.Conv2d, nn.GroupNorm)
    )
    if inputs.dim() != 4 or len(inputs) < 2 or not convolves or by_group:
        return False
    trial = turn(copy.deepcopy(module)).eval()
    try:
        with torch.no_grad():
            trial(inputs)
    except RuntimeError:
        return False
    return True


def pool_first(module: nn.Module) -> nn.Module:
    """Put every max pooling of a model in sequence before the ReLU that it follows.

    The largest of a window is the largest with or without ReLU, and has the gradient alone, so
    outputs and gradients are the same to the bit; there is less to cut off at zero, and to keep.
    Of a model with a ``forward`` of its own nothing is known, and nothing changes.
    """
    if type(module) is not nn.Sequential or altered(module):
        return module
    layers = list(module.named_children())
    for _, layer in layers:
        pool_first(layer)
    if len(layers) < len(module):  # a layer that stands twice: names do not tell the order
        return module
    for place in range(1, len(layers)):
        if _cuts(layers[place - 1][1]) and _pools(layers[place][1]):
            layers[place - 1 : place + 1] = layers[place], layers[place - 1]
    for name, layer in layers:  # the order is that of insertion
        delattr(module, name)
        module.add_module(name, layer)
    return module


def _cuts(layer: nn.Module) -> bool:
    return type(layer) is nn.ReLU and not layer.inplace and not altered(layer)


def _pools(layer: nn.Module) -> bool:
    if type(layer) not in POOLS or altered(layer):
        return False
    return bool(layer.dilation == 1 and not layer.return_indices)  # every window has an input


def turn(module: nn.Module) -> nn.Module:
    """Let a model of convolutions read and keep its numbers channels last."""
    for parameter in (p for p in module.parameters() if p.dim() == 4):
        parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    module.register_forward_pre_hook(_channels_last)
    return module


def _channels_last(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    images = isinstance(args[0], Tensor) and args[0].dim() == 4
    return (args[0].contiguous(memory_format=torch.channels_last), *args[1:]) if images else args
