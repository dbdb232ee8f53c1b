"""The numbers that a model reads: integers where it takes them, floating point else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedparity.data import Federation


def fitted(federation: Federation, module: nn.Module, dtype: torch.dtype) -> Federation:
    """Return the federation in a floating point type, with integer inputs where the model wants.

    A model with an embedding is given integers as they are; one whose first layer is a matrix
    product refuses them, and is given floating point numbers.
    """
    some = federation.train.x[:2]
    whole = not some.is_floating_point()
    if whole and not takes(module, some) and takes(module, some.to(dtype)):
        whole = False
    return federation.to(dtype, whole=whole)


@torch.no_grad()
def takes(module: nn.Module, inputs: Tensor) -> bool:
    """Tell whether a model computes anything of inputs ``[B, ...]``; it is put into eval mode."""
    try:
        module.eval()(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False
    return True
