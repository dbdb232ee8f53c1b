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
def descend(
    parameters: Pieces,
    gradient: Pieces,
    lr: float,
    keep: float = 1.0,
    over_gradient: bool = False,
) -> Pieces:
    """Take the step ``keep * y - lr * gradient`` and return where it leads.

    The result is written over the parameters, or over the gradient, which must then be the
    caller's own.
    """
    if not over_gradient:
        if keep != 1.0:
            torch._foreach_mul_(parameters, keep)
        torch._foreach_add_(parameters, gradient, alpha=-lr)
        return parameters
    for before, found in zip(parameters, gradient, strict=True):
        if keep == 1.0:
            torch.sub(before, found, alpha=lr, out=found)
        else:
            found.mul_(-lr).add_(before, alpha=keep)
    return gradient
