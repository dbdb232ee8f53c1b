"""What models ask of the shape of an example, and layers in a row."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from fedparity.errors import InputError

Shape = tuple[int, ...]


def flat_features(model: str, shape: Shape) -> int:
    """Return how many numbers an example has."""
    if not shape:
        raise InputError(f"{model} reads examples of one dimension or more, not single numbers")
    return math.prod(shape)


def sides(model: str, shape: Shape, least: int = 1) -> tuple[int, int, int]:
    """Return channels, height and width of images that are large enough."""
    if len(shape) != 3:
        raise InputError(f"{model} reads images (channels, height, width), not shape {shape}")
    if min(shape[1:]) < least:
        given = "x".join(map(str, shape[1:]))
        raise InputError(f"{model} reads images of at least {least}x{least} pixels, not {given}")
    channels, height, width = shape
    return channels, height, width


def sequence(**modules: nn.Module) -> nn.Module:
    """Return named layers that follow one another."""
    return nn.Sequential(OrderedDict(modules))


def norm(kind: str, channels: int) -> nn.Module:
    """Return a layer that normalises channels: ``batch``, or ``group`` with groups of 8 or more.

    Group normalisation keeps no statistics, and an example's output is its own affair.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(channels, 8), channels)
