"""Losses as an algorithm wants them reported: the task's, unless a part judges otherwise.

Any worker may call these functions with a model of its own; they write to nothing but its mode.
"""

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
    """Return the loss of every example of a block, ``[B]``, recorded so that it has a gradient.

    ``module`` is in the mode that the caller has put it into.
    """
    output = module(x)
    plain = setup.task.losses(output, y)

    def view(u: Tensor) -> Tensor:
        seen: Tensor = module(setup.task.augment(x, u))
        return seen

    return setup.algorithm.judge(plain, output, y, view, setup.progress(down))
