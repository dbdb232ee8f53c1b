"""What every engine works on (`Setup`), and what a run asks of it (`Engine`).

Shapes: ``d`` parameters, ``b`` numbers in buffers, ``m`` clients of an exchange, ``K`` of the
federation, ``B`` examples of a batch, ``N`` of a split.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from fedparity.data import Federation, Split
from fedparity.engines.evaluation import (
    blocks,
    evaluate_block,
    evaluate_each,
    evaluated,
    joined,
    outputs_of,
)
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import Keys, seeds_for
from fedparity.learning.solver import Solver
from fedparity.learning.task import Task
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Down, Named, Own, Tensors, Up
from fedparity.metrics import Metric
from fedparity.workers import cores

Ids = np.ndarray[tuple[int], np.dtype[np.int64]]
T = TypeVar("T")
_SAY = threading.Lock()
"""Held by the run that decides how many threads numpy has."""
FILLS_A_CORE = 1_000_000
"""Parameters times examples of a step from which arithmetic, not Python, is its cost."""


@dataclass(frozen=True)
class Setup:
    """A federation, a task and an algorithm, ready to be computed.

    All threads read it. ``module`` alone may be overwritten: it belongs to one worker, and the
    engines give every other worker a copy.
    """

    federation: Federation
    task: Task
    module: nn.Module
    layout: Layout
    algorithm: Algorithm
    solver: Solver
    seed: int
    rounds: int
    """Rounds of the whole run."""
    lstar: Tensor | None = None
    """L* of every client, ``[K]``."""
    local_buffers: bool = False
    """Whether buffers stay on the clients."""
    places: Ids | None = None
    """The clients' places in the whole federation, where this is a piece of it: seeds are
    addressed by them."""

    metrics: tuple[Metric, ...] = ()
    """What is evaluated of a client beside the means of the task's numbers."""

    device: str = "cpu"
    """Where clients compute."""

    @property
    def workers(self) -> int:
        """Threads that compute side by side: one a core, and one that feeds an accelerator."""
        return cores() if self.device == "cpu" else 1

    def lengths(self, clients: Ids) -> Ids:
        """Return the local steps of these clients, ``[m]``; 1 where a part makes the update."""
        return self._lengths[clients]

    @cached_property
    def tuned(self) -> Setup:
        """The same setup with the local steps that a part asks for at an evaluation."""
        steps = self.algorithm.tuning
        if not steps:
            return self
        return replace(self, solver=replace(self.solver, steps=steps, epochs=None))

    @cached_property
    def _lengths(self) -> Ids:
        sizes = self.federation.train.sizes
        return self.solver.lengths(sizes) if self.algorithm.trains else np.ones_like(sizes)

    @cached_property
    def most_examples(self) -> int:
        """The training examples of the client that has most."""
        return int(self.federation.train.sizes.max())

    @cached_property
    def label_counts(self) -> Tensor:
        """The training examples of each class, ``[K, classes]``, in the model's floating type."""
        data, classes = self.federation.train, self.federation.outputs
        counts = torch.bincount(data.owner * classes + data.y, minlength=len(data.sizes) * classes)
        return counts.view(-1, classes).to(self.layout.slots[0].dtype)

    @cached_property
    def codes(self) -> dict[str, Tensor]:
        """The group of each training example, ``[N]``, by the kinds that parts go by."""
        train = self.federation.train
        return {
            kind: torch.from_numpy(train.groups[kind].astype(np.int64)).to(train.y.device)
            for kind in sorted(self.algorithm.group_kinds)
        }

    def groups_at(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the groups of these training examples, in the shape of ``rows``, by kind."""
        flat = rows.flatten()
        return {
            kind: codes.index_select(0, flat).view(rows.shape) for kind, codes in self.codes.items()
        }

    def progress(self, down: Down) -> float:
        """Return the share of the run's rounds that is done with this one."""
        return down.round / self.rounds

    def seeds(self, down: Down, clients: Ids, purpose: str) -> Keys:
        """Return the seeds ``[m]`` of these clients in the round of ``down``, for one purpose."""
        places = clients if self.places is None else self.places[clients]
        return seeds_for(self.seed, purpose, down.round, places)


def batches_of(down: Down) -> str:
    """Return the purpose of the seeds of an exchange's batches."""
    return "tuning" if down.phase == "evaluate" else "batches"


def fills_a_core(setup: Setup) -> bool:
    """Tell whether one step of the client of median size keeps a core busy by itself."""
    batch = setup.solver.batch or int(np.median(setup.federation.train.sizes))
    return setup.layout.size * batch >= FILLS_A_CORE


class Engine:
    """Computes the client side of an exchange for ``m`` clients, on the workers that it holds.

    The thread that calls is one of the workers. An engine may overwrite the models of its workers,
    and no tensor that it is given.
    """

    name = "engine"

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        """Return the answers of ``clients``, whose ids ascend: every tensor is ``[m, ...]``.

        ``buffers`` are ``[b]`` for all or ``[m, b]``; ``states`` are ``[m, ...]``, by part.
        """
        raise NotImplementedError

    def personal(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Own:
        """Return the model that each client would really use.

        These are parameters ``[m, d]``, or ``[m, M, d]`` with shares ``[m, M]`` where a client
        mixes predictions, and buffers ``[m, b]``; what is given has the shapes of :meth:`ask`.
        """
        raise NotImplementedError

    def evaluate_each(
        self, x: Tensor, buffers: Tensor, split: Split, outputs: bool = False
    ) -> dict[str, Tensor]:
        """Return loss and metrics ``[N]`` of every example at the shared parameters ``x [d]``.

        With ``outputs`` also what the model says of each: see
        :func:`~fedparity.engines.evaluation.evaluate_block`.
        """
        work = blocks(split.x)

        def one(block: int, module: nn.Module) -> dict[str, Tensor]:
            rows = work[block]
            return evaluate_block(self.setup.task, module, split.x[rows], split.y[rows], outputs)

        return joined(self.at_modules(len(work), one, x, buffers))

    def at_modules(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]:
        """Return ``one(piece, module)`` of every piece of work, in the order of the pieces.

        Each call is on some worker, whose own module stands at ``x [d]`` and ``buffers [b]``; it is
        overwritten with them, and nobody else uses it during the call.
        """
        raise NotImplementedError

    def evaluate_each_own(self, split: Split, clients: Ids, own: Own) -> dict[str, Tensor]:
        """Return loss, metrics ``[N]`` and outputs ``[N, ...]`` at the clients' own models.

        The examples of these clients stand one client after another, each at its row of ``own``.
        """
        places = [row for row, client in enumerate(clients) if split.sizes[client]]
        return joined([self._evaluate_one(*split.aligned(int(clients[r])), own, r) for r in places])

    def _evaluate_one(self, x: Tensor, y: Tensor, own: Own, row: int) -> dict[str, Tensor]:
        """Return the same of one client's examples, at this row of ``own``."""
        task, parameters, buffers = self.setup.task, own.parameters[row], own.buffers[row]
        if own.shares is None:
            return self.at_modules(
                1, lambda _, module: evaluate_each(task, module, x, y, True), parameters, buffers
            )[0]
        said = [
            self.at_modules(1, lambda _, module: outputs_of(module, x), one, buffers)[0]
            for one in parameters
        ]
        return evaluated(task, task.mixed(torch.stack(said), own.shares[row]), y, True)

    def evaluate_own(
        self, split: str, clients: Ids, own: Own
    ) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Return the mean loss and metrics ``[m]`` of clients at their own models, by name.

        ``split`` is its name; a client without an example has NaN.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End the engine's threads."""


def altered(layer: nn.Module) -> bool:
    """Tell whether a layer has hooks, or a ``forward`` that is not of its class."""
    before = layer._forward_pre_hooks or layer._backward_pre_hooks
    after = layer._forward_hooks or layer._backward_hooks
    return bool(before or after or "forward" in vars(layer))


def rows_of(tree: Mapping[str, Tensors], rows: Tensor | slice | int) -> Named:
    """Return the given rows of every tensor ``[m, ...]``; a slice gives views, not copies."""
    return {part: {k: v[rows] for k, v in tensors.items()} for part, tensors in tree.items()}


def join(trees: list[Named], stack: bool) -> Named:
    """Join the tensors of several lanes along the clients: ``stack`` adds that dimension."""
    together = torch.stack if stack else torch.cat
    return {
        part: {key: together([tree[part][key] for tree in trees]) for key in tensors}
        for part, tensors in trees[0].items()
    }


@contextmanager
def intraop(threads: int) -> Iterator[None]:
    """Run with this many threads inside an operation, and put the old number back.

    In torch the number is the calling thread's own. In numpy and scipy it is the whole process's:
    of runs side by side in one process, the first to come sets it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with ExitStack() as stack:
            if _SAY.acquire(blocking=False):
                stack.callback(_SAY.release)
                stack.enter_context(_blas().limit(limits=threads))
            yield
    finally:
        torch.set_num_threads(before)


def _blas() -> ThreadpoolController:
    """Return the linear algebra of numpy and, once it is loaded, of scipy.

    Its threads spin where only one has work.
    """
    return ThreadpoolController().select(user_api="blas")
