"""Networks of convolutions in a row: LeNet-5, the papers' CNN, and one of five layers."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from fedparity.arguments import checked
from fedparity.errors import InputError
from fedparity.learning.models.shapes import Shape, sequence, sides

Width = Annotated[int, Field(ge=1)]


@checked
def lenet(
    shape: Shape,
    outputs: int,
    *,
    activation: Literal["relu", "tanh"] = "relu",
    padding: Annotated[int, Field(ge=0)] = 0,
) -> nn.Module:
    """LeNet-5: 5x5 convolutions to 6 and 16 channels, linear layers of 120 and 84 units.

    Each convolution is followed by the activation and a 2x2 max pooling. The original reads
    32x32 images; MNIST's 28x28 become such by ``padding=2``.
    """
    act = nn.ReLU if activation == "relu" else nn.Tanh
    features = _conv_features("lenet", shape, channels=16, padding=padding)
    return sequence(
        conv1=nn.Conv2d(shape[0], 6, 5, padding=padding),
        act1=act(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        act2=act(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden1=nn.Linear(features, 120),
        act3=act(),
        hidden2=nn.Linear(120, 84),
        act4=act(),
        out=nn.Linear(84, outputs),
    )


@checked
def cnn(
    shape: Shape,
    outputs: int,
    *,
    channels: Width = 64,
    layers: Annotated[int, Field(ge=2)] = 2,
    hidden: Annotated[int, Field(ge=2)] = 384,
) -> nn.Module:
    """The network of the FedEBA+ paper: two 5x5 convolutions of 64 channels, 384 and 192 units.

    Each convolution is followed by ReLU and a 2x2 max pooling; a 3x32x32 image gives 1600
    features, other images what their size gives. For wider networks ``channels`` and ``hidden``,
    of which the second hidden layer has half; for deeper ones ``layers``: convolutions after the
    second keep the size of what they read, by padding, and are followed by ReLU alone.
    """
    features = _conv_features("cnn", shape, channels=channels)
    modules: dict[str, nn.Module] = {}
    for number in range(1, layers + 1):
        read = shape[0] if number == 1 else channels
        modules[f"conv{number}"] = nn.Conv2d(read, channels, 5, padding=0 if number < 3 else 2)
        modules[f"relu{number}"] = nn.ReLU()
        if number < 3:
            modules[f"pool{number}"] = nn.MaxPool2d(2)
    return sequence(
        **modules,
        flatten=nn.Flatten(),
        hidden1=nn.Linear(features, hidden),
        **{f"relu{layers + 1}": nn.ReLU()},
        hidden2=nn.Linear(hidden, hidden // 2),
        **{f"relu{layers + 2}": nn.ReLU()},
        out=nn.Linear(hidden // 2, outputs),
    )


@checked
def cnn5(shape: Shape, outputs: int, *, channels: Width = 32, hidden: Width = 128) -> nn.Module:
    """Five layers: 3x3 convolutions of 32, 64 and 64 channels, a hidden layer, and the last.

    Each convolution keeps the size of its image by padding; ReLU follows each, and a 2x2 max
    pooling too. ``channels`` are those of the first convolution.
    """
    read, height, width = sides("cnn5", shape, least=8)
    modules: dict[str, nn.Module] = {}
    for number, given in enumerate((channels, 2 * channels, 2 * channels), start=1):
        modules[f"conv{number}"] = nn.Conv2d(read, given, 3, padding=1)
        modules[f"relu{number}"] = nn.ReLU()
        modules[f"pool{number}"] = nn.MaxPool2d(2)
        read = given
    features = read * (height // 8) * (width // 8)
    return sequence(
        **modules,
        flatten=nn.Flatten(),
        hidden1=nn.Linear(features, hidden),
        relu4=nn.ReLU(),
        out=nn.Linear(hidden, outputs),
    )


def _conv_features(model: str, shape: Shape, *, channels: int, padding: int = 0) -> int:
    """Return what two 5x5 convolutions, each before a 2x2 pooling, leave of an image."""
    if len(shape) != 3:
        raise InputError(f"{model} reads images (channels, height, width), not shape {shape}")
    sides = [((side + 2 * padding - 4) // 2 - 4) // 2 for side in shape[1:]]
    if min(sides) < 1:
        least, given = 16 - 2 * padding, "x".join(map(str, shape[1:]))
        raise InputError(f"{model} reads images of at least {least}x{least} pixels, not {given}")
    return channels * math.prod(sides)
