"""ResNet-18, with normalisation by batch or by group."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.learning.models.shapes import Shape, norm, sequence, sides

SMALL = 64
"""Pixels a side up to which an image is too small to be halved twice before the first block."""
Norm = Literal["batch", "group"]


class Block(nn.Module):
    """Two 3x3 convolutions, to whose result what they read is added."""

    def __init__(self, read: int, given: int, stride: int, kind: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(read, given, 3, stride, padding=1, bias=False)
        self.norm1 = norm(kind, given)
        self.conv2 = nn.Conv2d(given, given, 3, padding=1, bias=False)
        self.norm2 = norm(kind, given)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or read != given:
            conv = nn.Conv2d(read, given, 1, stride, bias=False)
            self.shortcut = sequence(conv=conv, norm=norm(kind, given))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm1(self.conv1(x)).relu()
        found: Tensor = (self.norm2(self.conv2(inner)) + self.shortcut(x)).relu()
        return found


@checked
def resnet18(
    shape: Shape,
    outputs: int,
    *,
    norm: Norm = "batch",
    stem: Literal["auto", "small", "large"] = "auto",
) -> nn.Module:
    """ResNet-18: eight blocks of two convolutions, of 64, 128, 256 and 512 channels.

    ``norm="group"`` has group normalisation where the original has BatchNorm, whose statistics of
    one client's batches mislead another. The ``large`` stem is a 7x7 convolution of stride 2 and a
    pooling, as for ImageNet; the ``small`` one is a 3x3 convolution of stride 1. ``auto`` takes
    the small one for images of up to 64 pixels a side.

    References
    ----------
    He, Zhang, Ren, Sun. Deep residual learning for image recognition. CVPR 2016.
    """
    channels, height, width = sides("resnet18", shape, least=8)
    large = stem == "large" or (stem == "auto" and min(height, width) > SMALL)
    modules = _stem(channels, large, norm)
    read = 64
    for stage, given in enumerate((64, 128, 256, 512), start=1):
        for place in (1, 2):
            stride = 2 if place == 1 and stage > 1 else 1
            modules[f"block{stage}_{place}"] = Block(read, given, stride, norm)
            read = given
    modules |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    return sequence(**modules, classifier=nn.Linear(read, outputs))


def _stem(channels: int, large: bool, kind: Norm) -> dict[str, nn.Module]:
    conv = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
    if not large:
        conv = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    found: dict[str, nn.Module] = {"conv": conv, "norm": norm(kind, 64), "relu": nn.ReLU()}
    return {**found, "shrink": nn.MaxPool2d(3, 2, 1)} if large else found
