"""The choice of an engine: a fixed rule on model, batch and cohort, never a timing.

It runs on the calling thread before the first round. Trials of the model overwrite the mode of the
setup's module, and its buffers for a moment; parameters and torch's generator stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from fedparity.engines.device import DeviceEngine
from fedparity.engines.engine import Engine, Setup, fills_a_core
from fedparity.engines.evaluation import mixes_examples
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.reference.engine import LoopEngine, seeded
from fedparity.engines.stacked.engine import VmapEngine, stack_width
from fedparity.engines.stacked.in_place import reads_in_place, uneven
from fedparity.errors import InputError, unknown
from fedparity.learning.solver import Solver
from fedparity.learning.task import Task

ENGINES = ("auto", "loop", "vmap")
IDLE = 1.5
"""How much longer than the mean client the longest may train, where idle rows cost arithmetic."""


class Choice(NamedTuple):
    """An engine's name and the reason for it."""

    name: str
    reason: str


def choose(setup: Setup, cohort: int) -> Choice:
    """Return the engine for an experiment; the same experiment always gets the same one."""
    sizes = setup.federation.train.sizes
    if obstacle := unstackable(setup):
        return Choice("loop", obstacle)
    if falls_back(setup):
        return Choice("loop", "torch would compute a stack of the model one client at a time")
    if reads_in_place(setup):
        return Choice("vmap", "full batches of linear layers are read block by block by all cores")
    if cohort < 2 and Chain.of(setup) is None:
        return Choice("loop", "one client a round")
    if fills_a_core(setup) and not _worth_stacking(setup):
        return Choice("loop", f"a step of {setup.layout.size:,} parameters fills a core by itself")
    if setup.solver.batch is None and uneven(sizes):
        return Choice("loop", "full batches of very different sizes would be mostly padding")
    kind = " of linear layers" if Chain.of(setup) is not None else ""
    clients = "a client" if cohort == 1 else f"{cohort} clients"
    verb = "fits" if cohort == 1 else "fit"
    return Choice(
        "vmap", f"{clients} of {setup.layout.size:,} parameters{kind} {verb} in one stack"
    )


def _worth_stacking(setup: Setup) -> bool:
    """Tell whether large steps are faster stacked: matrix products of clients that keep step."""
    if setup.solver.batch is None or Chain.of(setup) is None or stack_width(setup) < 2:
        return False
    lengths = setup.lengths(np.arange(len(setup.federation)))
    return bool(lengths.max() <= IDLE * lengths.mean())


def make(setup: Setup, name: str, chunk: int | None = None) -> Engine:
    """Return the engine of this name, on the device of the setup."""
    kinds: dict[str, Callable[[Setup], Engine]] = {
        "loop": partial(LoopEngine, random=name == "loop" and draws_random_numbers(setup)),
        "vmap": partial(VmapEngine, chunk=chunk),
    }
    if name not in kinds:
        raise unknown("engine", name, ENGINES)
    return kinds[name](setup) if setup.device == "cpu" else DeviceEngine(setup, kinds[name])


def check_here(name: str) -> None:
    """Refuse to simulate what was meant for a real federation."""
    if name == "flower":
        raise InputError(
            "engine 'flower' is a federation of real sites: start it with 'flwr run', or simulate "
            "the experiment with engine 'loop', which gives the same numbers"
        )


def check_stackable(setup: Setup) -> None:
    """Refuse an experiment that the vmap engine cannot run, before its first round."""
    if obstacle := unstackable(setup):
        raise InputError(f"engine 'vmap' cannot run this: {obstacle}; use 'loop' or 'auto'")


def unstackable(setup: Setup) -> str | None:
    """Return why clients cannot be stacked by vmap, or None if they can."""
    if draws_random_numbers(setup):
        return "a layer draws random numbers, from each client's own seed"
    mixing = setup.layout.buffers or mixes_examples(setup.module)
    if mixing and not _even_batches(setup.solver, setup.federation.train.sizes):
        return "BatchNorm statistics do not allow padded batches"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            _stacked(setup)
    except RuntimeError as error:
        return f"torch cannot stack the model ({str(error).splitlines()[0][:80]})"
    return None


def falls_back(setup: Setup) -> bool:
    """Tell whether torch has no rule for some layer of a stack, so that a stack gains nothing."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _stacked(setup)
    return any("batching rule" in str(warning.message) for warning in told)


def _stacked(setup: Setup) -> None:
    """Compute the outputs ``[2, B, ...]`` of a stack of two clients, to see whether torch can."""
    layout, module, inputs = setup.layout, setup.module, _two_examples(setup)
    x, buffers = layout.read(module)

    def forward(x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        tensors = {**layout.parameters(x), **layout.buffer_tensors(buffers)}
        output: Tensor = functional_call(module, tensors, (inputs,))
        return output

    module.train()
    with torch.no_grad():
        vmap(forward)(*(tensor.expand(2, *tensor.shape) for tensor in (x, buffers, inputs)))


def draws_random_numbers(setup: Setup) -> bool:
    """Tell whether the model in training mode moves torch's generator."""
    before = setup.layout.read(setup.module)
    setup.module.train()
    with torch.no_grad(), seeded(0):
        still = torch.get_rng_state()
        setup.module(_two_examples(setup))
        moved = not torch.equal(torch.get_rng_state(), still)
    setup.layout.write(setup.module, *before)
    return moved


def _two_examples(setup: Setup) -> Tensor:
    """Return the inputs of two training examples, ``[2, ...]``; of one, twice."""
    x = setup.federation.train.x
    return x[:2] if len(x) > 1 else x.expand(2, *x.shape[1:])


def check_model(setup: Setup, task: Task) -> frozenset[str]:
    """Run two examples through model and loss, so that a mismatch is said before the first round.

    Returns the names of the task's metrics.
    """
    data = setup.federation.train
    try:
        with torch.no_grad():
            setup.module.eval()
            output = setup.module(data.x[:2])
            losses, metrics = task.losses(output, data.y[:2]), task.metrics(output, data.y[:2])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        first = str(error).splitlines()[0]
        shape = tuple(setup.federation.shape)
        raise InputError(
            f"the model does not fit inputs of shape {shape} and {setup.federation.outputs} "
            f"outputs: {first}"
        ) from error
    if losses.shape != data.y[:2].shape[:1]:
        raise InputError(f"the loss must be one number an example, got shape {tuple(losses.shape)}")
    return frozenset(metrics)


def _even_batches(solver: Solver, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    if solver.batch is None:
        return bool((sizes == sizes[0]).all())
    return bool((sizes % solver.batch == 0).all())
