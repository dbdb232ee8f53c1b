"""The matrix products of a round at the speed of one large product of torch's."""

from __future__ import annotations

import torch
from contest import Contestant, turns
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fedparity as fp

SIDE = 1536
"""Side of the large product: far more work than memory."""


def rate(repeats: int, threads: int) -> float:
    """Return the floating-point operations a millisecond of a large product."""
    left, right = (torch.randn(SIDE, SIDE) for _ in range(2))
    product = Contestant("product", lambda: left @ right, threads)
    return 2 * SIDE**3 / turns([product], repeats).median("product")


def operations(experiment: fp.Experiment) -> float:
    """Return the operations in products and convolutions of a round's training."""
    train, solver = experiment.federation.train, experiment.solver
    cohort = experiment.sample(1)
    sizes = train.sizes[cohort]
    batch = sizes if solver.batch is None else sizes.clip(max=solver.batch)
    examples = float((solver.lengths(sizes) * batch).sum())
    module, some = experiment.setup.module.train(), min(50, len(train))
    with FlopCounterMode(display=False) as counter:
        loss = nn.functional.cross_entropy(module(train.x[:some]), train.y[:some])
        torch.autograd.grad(loss, list(module.parameters()))
    return float(counter.get_total_flops()) * examples / some
