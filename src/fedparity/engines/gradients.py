"""Gradients by slot, and the plain step along them."""

from __future__ import annotations

import torch
from torch import Tensor

Pieces = tuple[Tensor, ...]
"""One tensor a slot of the layout."""


def gradient_of(
    losses: Tensor, parameters: Pieces, weights: Tensor | None = None, retain_graph: bool = False
) -> Pieces:
    """Return the gradient of the weighted sum of losses; zeros for parameters it does not reach.

    ``weights`` has the shape of ``losses``; without it ``losses`` is one number.
    """
    return torch.autograd.grad(
        losses, parameters, weights, retain_graph=retain_graph, materialize_grads=True
    )


@torch.no_grad()
def descend(parameters: Pieces, gradient: Pieces, lr: float, in_place: bool = True) -> Pieces:
    """Take the step ``- lr * gradient`` and return where it leads."""
    if not in_place:
        return torch._foreach_add(parameters, gradient, alpha=-lr)
    torch._foreach_add_(parameters, gradient, alpha=-lr)
    return parameters
