"""Vision transformers: ViT-B/32, and one of any size."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.errors import InputError
from fedparity.learning.models.shapes import Shape, sides

Count = Annotated[int, Field(ge=1)]


class Attention(nn.Module):
    """Every place looks at all others, in several heads; written out, so that it can be lifted."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.read = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, places, dim = x.shape
        parts = self.read(x).reshape(batch, places, 3, self.heads, dim // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        looks = (query @ key.mT * (dim // self.heads) ** -0.5).softmax(-1)
        found: Tensor = self.out((looks @ value).transpose(1, 2).reshape(batch, places, dim))
        return found


class Layer(nn.Module):
    """Attention and two linear layers, each added to what it read and normalised before."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2, self.wide = nn.LayerNorm(dim), nn.Linear(dim, hidden)
        self.gelu, self.narrow = nn.GELU(), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        found: Tensor = x + self.narrow(self.gelu(self.wide(self.norm2(x))))
        return found


class VisionTransformer(nn.Module):
    """Patches of an image as words, and a first word that is classified."""

    def __init__(
        self, shape: Shape, outputs: int, patch: int, dim: int, depth: int, heads: int, hidden: int
    ) -> None:
        super().__init__()
        channels, height, width = sides("vit", shape, least=patch)
        if height % patch or width % patch:
            raise InputError(f"vit: patches of {patch} pixels do not fill {height}x{width}")
        if dim % heads:
            raise InputError(f"vit: a width of {dim} does not go into {heads} heads")
        places = (height // patch) * (width // patch)
        self.patches = nn.Conv2d(channels, dim, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, dim))
        self.place = nn.Parameter(torch.randn(1, places + 1, dim) * 0.02)
        self.layers = nn.Sequential(*(Layer(dim, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, outputs)

    def forward(self, x: Tensor) -> Tensor:
        words = self.patches(x).flatten(2).mT
        words = torch.cat([self.first.expand(len(words), -1, -1), words], 1) + self.place
        found: Tensor = self.classifier(self.norm(self.layers(words))[:, 0])
        return found


@checked
def vit(
    shape: Shape,
    outputs: int,
    *,
    patch: Count = 4,
    dim: Count = 64,
    depth: Count = 4,
    heads: Count = 4,
    hidden: Count = 128,
) -> nn.Module:
    """A small vision transformer: 4 layers of width 64 with 4 heads, patches of 4 pixels.

    No Dropout.

    References
    ----------
    Dosovitskiy et al. An image is worth 16x16 words. ICLR 2021.
    """
    return VisionTransformer(shape, outputs, patch, dim, depth, heads, hidden)


@checked
def vit_b32(shape: Shape, outputs: int) -> nn.Module:
    """ViT-B/32: 12 layers of width 768 with 12 heads, patches of 32 pixels (see ``vit``)."""
    return VisionTransformer(shape, outputs, 32, 768, 12, 12, 3072)
