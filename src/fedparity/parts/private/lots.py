"""What a client's steps are taken over: as sizes, and as what an accountant has to know."""

from __future__ import annotations

import torch
from torch import Tensor

from fedparity.method import Context
from fedparity.toolbox.accounting import Mechanism


def lot_sizes(ctx: Context) -> Tensor:
    """Return by how many examples each client's sum of gradients is divided, ``[m]``."""
    batch, n = ctx.solver.batch, ctx.n
    if batch is None:
        return n
    return torch.full_like(n, batch) if ctx.solver.lots == "poisson" else n.clamp_max(batch)


def mechanism(ctx: Context, n: int, noise: float) -> Mechanism:
    """Return one step of a client of ``n`` examples, with noise in bounds of one gradient."""
    batch = ctx.solver.batch
    if batch is None or ctx.solver.lots == "poisson":
        drawn = batch is not None and batch < n
        return Mechanism(noise, rate=batch / n if batch is not None and drawn else None)
    # Of a lot of fixed size one example is replaced by another: twice the bound.
    return Mechanism(noise / 2, cohort=(batch, n) if batch < n else None)
