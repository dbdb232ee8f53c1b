"""MobileNetV2: convolutions of single channels between narrow layers."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.learning.models.shapes import Shape, norm, sequence, sides

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and first stride of every stage (Table 2 of the paper)."""
SMALL = 64
"""Pixels a side up to which the first two halvings are left out."""
Norm = Literal["batch", "group"]


class Bottleneck(nn.Module):
    """Widen, filter each channel by itself, narrow; add what was read where shapes agree."""

    def __init__(self, read: int, given: int, expansion: int, stride: int, kind: Norm) -> None:
        super().__init__()
        wide = read * expansion
        layers: dict[str, nn.Module] = {}
        if expansion != 1:
            layers |= _filter("wide", nn.Conv2d(read, wide, 1, bias=False), wide, kind)
        each = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        layers |= _filter("each", each, wide, kind)
        narrow = nn.Conv2d(wide, given, 1, bias=False)
        self.layers = sequence(**layers, narrow=narrow, narrow_norm=norm(kind, given))
        self.adds = stride == 1 and read == given

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return x + found if self.adds else found


@checked
def mobilenet_v2(shape: Shape, outputs: int, *, norm: Norm = "batch") -> nn.Module:
    """MobileNetV2 of width 1: 17 bottlenecks, 1280 features.

    Images of up to 64 pixels a side are halved three times, not five: the stem and the second stage
    keep their size. The original's Dropout before the last layer is left out.

    References
    ----------
    Sandler, Howard, Zhu, Zhmoginov, Chen. MobileNetV2: inverted residuals and linear bottlenecks.
    CVPR 2018.
    """
    channels, *size = sides("mobilenet_v2", shape, least=8)
    small = min(size) <= SMALL
    stem = nn.Conv2d(channels, 32, 3, 1 if small else 2, 1, bias=False)
    modules, read = _filter("stem", stem, 32, norm), 32
    for stage, (expansion, given, blocks, first) in enumerate(STAGES, start=1):
        for place in range(1, blocks + 1):
            stride = first if place == 1 and not (small and stage == 2) else 1
            made = Bottleneck(read, given, expansion, stride, norm)
            modules[f"block{stage}_{place}"], read = made, given
    modules |= _filter("last", nn.Conv2d(read, 1280, 1, bias=False), 1280, norm)
    modules |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    return sequence(**modules, classifier=nn.Linear(1280, outputs))


def _filter(name: str, conv: nn.Module, channels: int, kind: Norm) -> dict[str, nn.Module]:
    return {name: conv, f"{name}_norm": norm(kind, channels), f"{name}_relu": nn.ReLU6()}
