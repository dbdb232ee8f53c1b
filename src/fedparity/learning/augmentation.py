"""Views of a batch of inputs for self-regularisation: pure functions of inputs and numbers.

A view is the same for a whole batch, and depends on the vector ``u`` of :data:`DRAWS` numbers in
[0, 1) alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Augment = Callable[[Tensor, Tensor], Tensor]
DRAWS = 4


def usual(inputs: Tensor, u: Tensor) -> Tensor:
    """Return the view usual for the inputs: grey images rotate, colour images flip and shift.

    Inputs that are no images ``[B, C, H, W]`` stay as they are.
    """
    if inputs.dim() != 4:
        return inputs
    return colour(inputs, u) if inputs.shape[1] == 3 else rotate(inputs, u)


def rotate(inputs: Tensor, u: Tensor, degrees: float = 30.0) -> Tensor:
    """Rotate images by an angle in ``[-degrees, degrees)``, filling with zeros."""
    angle = (2 * u[0] - 1) * math.radians(degrees)
    cos, sin = torch.cos(angle), torch.sin(angle)
    height, width = inputs.shape[-2:]
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, height, dtype=inputs.dtype) * (height - 1) / 2,
        torch.linspace(-1, 1, width, dtype=inputs.dtype) * (width - 1) / 2,
        indexing="ij",
    )
    across = (cos * x - sin * y) / max(width - 1, 1) * 2
    down = (sin * x + cos * y) / max(height - 1, 1) * 2
    grid = torch.stack([across, down], -1).expand(len(inputs), height, width, 2)
    return F.grid_sample(inputs, grid, align_corners=True)


def colour(inputs: Tensor, u: Tensor) -> Tensor:
    """Flip left and right half of the time, change brightness and contrast, sometimes grey."""
    flipped = torch.where(u[0] < 0.5, inputs, inputs.flip(-1))
    mean = flipped.mean((-3, -2, -1), keepdim=True)
    bright = flipped * (0.6 + 0.8 * u[1])
    contrast = mean + (bright - mean) * (0.6 + 0.8 * u[2])
    grey = contrast.mean(-3, keepdim=True).expand_as(contrast)
    return torch.where(u[3] < 0.2, grey, contrast)
