"""Losses as an algorithm wants them reported: the task's, unless a part judges otherwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedparity.engines.engine import Setup
from fedparity.engines.evaluation import blocks, losses
from fedparity.method.messages import Down


def judged(setup: Setup, module: nn.Module, x: Tensor, y: Tensor, down: Down) -> Tensor:
    """Return the loss of every example, ``[N]``, in the round of a message."""
    if not setup.algorithm.having("judge"):
        return losses(setup.task, module, x, y)
    module.eval()
    with torch.inference_mode():
        return torch.cat(
            [judged_block(setup, module, x[rows], y[rows], down) for rows in blocks(x)]
        )


def judged_block(setup: Setup, module: nn.Module, x: Tensor, y: Tensor, down: Down) -> Tensor:
    """Return the loss of every example of a block; gradients can be taken of it."""
    output = module(x)
    plain = setup.task.losses(output, y)

    def view(u: Tensor) -> Tensor:
        seen: Tensor = module(setup.task.augment(x, u))
        return seen

    return setup.algorithm.judge(plain, output, y, view, setup.progress(down))
