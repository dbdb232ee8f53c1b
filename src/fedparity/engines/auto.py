"""The choice of an engine: a fixed rule on model, batch and cohort, never a timing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fedparity.core.solver import Solver
from fedparity.core.task import Task
from fedparity.engines.loop import LoopEngine, seeded
from fedparity.engines.setup import Engine, Setup
from fedparity.engines.vmapped import VmapEngine
from fedparity.errors import InputError, unknown

ENGINES = ("auto", "loop", "vmap")
SMALL = 100_000
"""Parameters up to which stacking clients beats training them one by one."""
UNEVEN = 4.0
"""How much larger than the median the largest full batch may be before padding eats the gain."""


class Choice(NamedTuple):
    """An engine's name and the reason for it."""

    name: str
    reason: str


def choose(setup: Setup, cohort: int) -> Choice:
    """Return the engine for an experiment; the same experiment always gets the same one."""
    sizes = setup.federation.train.sizes
    if draws_random_numbers(setup):
        return Choice("loop", "a layer draws random numbers, from each client's own seed")
    if setup.layout.buffers and not _even_batches(setup.solver, sizes):
        return Choice("loop", "BatchNorm statistics do not allow padded batches")
    if cohort < 2:
        return Choice("loop", "one client a round")
    if setup.layout.size > SMALL:
        return Choice("loop", f"{setup.layout.size:,} parameters fill a core by themselves")
    if setup.solver.batch is None and sizes.max() > UNEVEN * np.median(sizes) and sizes.max() > 512:
        return Choice("loop", "full batches of very different sizes would be mostly padding")
    return Choice("vmap", f"{cohort} clients of {setup.layout.size:,} parameters fit in one stack")


def make(setup: Setup, name: str, chunk: int | None = None) -> Engine:
    """Return the engine of this name."""
    if name == "loop":
        return LoopEngine(setup, random=draws_random_numbers(setup))
    if name == "vmap":
        if draws_random_numbers(setup):
            raise InputError("engine 'vmap' cannot run layers that draw random numbers: use 'loop'")
        return VmapEngine(setup, chunk)
    raise unknown("engine", name, ENGINES)


def draws_random_numbers(setup: Setup) -> bool:
    """Tell whether the model in training mode gives another output with another seed."""
    data = setup.federation.train
    before = setup.layout.read(setup.module)
    setup.module.train()
    inputs = data.x[:2] if len(data) > 1 else data.x[:1].expand(2, *data.x.shape[1:])
    outputs = []
    with torch.no_grad():
        for seed in (0, 1):
            with seeded(seed):
                outputs.append(setup.module(inputs))
            setup.layout.write(setup.module, *before)
    return not torch.equal(*outputs)


def check_model(setup: Setup, task: Task) -> None:
    """Run one example through model and loss, so that a mismatch is said before the first round."""
    data = setup.federation.train
    try:
        with torch.no_grad():
            setup.module.eval()
            losses = task.losses(setup.module(data.x[:2]), data.y[:2])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        first = str(error).splitlines()[0]
        shape = tuple(setup.federation.shape)
        raise InputError(
            f"the model does not fit inputs of shape {shape} and {setup.federation.outputs} "
            f"outputs: {first}"
        ) from error
    if losses.shape != data.y[:2].shape[:1]:
        raise InputError(f"the loss must be one number an example, got shape {tuple(losses.shape)}")


def _even_batches(solver: Solver, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    if solver.batch is None:
        return bool((sizes == sizes[0]).all())
    return bool((sizes % solver.batch == 0).all())
