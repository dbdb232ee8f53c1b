"""The reference engine: clients one after another, or side by side on the cores.

Every client is computed with one intra-op thread by a module of its own, whose parameters are views
of one flat vector, so the bits do not depend on how many clients run at once.
"""

from __future__ import annotations

import copy
import os
import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedparity.core import client as client_side
from fedparity.core.client import Down, Lane, Named, Tree, Up
from fedparity.core.layout import Layout
from fedparity.core.part import Fact
from fedparity.core.seeds import as_tensor
from fedparity.data import Split
from fedparity.engines.blame import blame
from fedparity.engines.evaluation import Values, blocks, joined, measure, measure_block
from fedparity.engines.judging import judged
from fedparity.engines.setup import Engine, Ids, Setup, join, known_lstar, rows_of
from fedparity.errors import ClientError, InputError

T = TypeVar("T")
FILLS_A_CORE = 1_000_000
"""Parameters times examples a step from which arithmetic, not Python, is the cost of a step."""


class Desk:
    """A module whose parameters and gradients are views of two flat vectors."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self.module = copy.deepcopy(module)
        self.layout = layout
        self.x, _ = layout.read(self.module)
        self.g = torch.zeros_like(self.x)
        for slot, parameter in zip(layout.slots, self.module.parameters(), strict=True):
            parameter.data = self.x[slot.start : slot.stop].view(slot.shape)
            parameter.grad = self.g[slot.start : slot.stop].view(slot.shape)
        self.buffers = [b for _, b in self.module.named_buffers()]

    def place(self, x: Tensor) -> None:
        """Set the parameters."""
        self.x.copy_(x)

    def place_buffers(self, b: Tensor) -> None:
        """Set the buffers."""
        if self.buffers:
            for mine, new in zip(self.buffers, self.layout.buffer_tensors(b).values(), strict=True):
                mine.copy_(new)

    def read_buffers(self) -> Tensor:
        """Return the buffers as one vector."""
        if not self.buffers:
            return self.x.new_zeros(0)
        return torch.cat([b.reshape(-1).to(self.x.dtype) for b in self.buffers])


class OneClient(Lane):
    """A lane of a single client."""

    def __init__(self, setup: Setup, desk: Desk, down: Down, client: int) -> None:
        self.layout, self.algorithm, self.solver = setup.layout, setup.algorithm, setup.solver
        self.setup, self.desk, self.client = setup, desk, client
        self.x, self.y = setup.federation.train.client(client)
        size, ids = np.asarray([len(self.x)]), np.asarray([client])
        self.longest = int(setup.lengths(ids)[0])
        self.n, self.steps = torch.tensor(len(self.x)), torch.tensor(self.longest)
        self.seed = as_tensor(setup.seeds(down, ids, "client"))[0]
        self.plan = (
            self.solver.batches(setup.seeds(down, ids, "batches"), size)
            if down.phase == "train"
            else None
        )

    def spread(self, x: Tensor) -> Tensor:
        return x

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def running(self, step: int) -> Tensor | None:
        return None

    def begin(self, buffers: Tensor) -> None:
        self.desk.place_buffers(buffers)
        self.desk.module.train()

    def end(self) -> Tensor:
        return self.desk.read_buffers()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the examples of a step: exactly those, no padding."""
        if self.plan is None:
            return self.x, self.y
        rows = torch.from_numpy(self.plan.index[0, step][self.plan.mask[0, step]])
        return self.x[rows], self.y[rows]

    def gradient(self, y: Tensor, step: int, tree: Tree, down: Down) -> tuple[Tensor, Tensor]:
        desk, algorithm = self.desk, self.algorithm
        desk.place(y)
        desk.g.zero_()
        inputs, target = self.batch(step)
        output = desk.module(inputs)
        losses = self.setup.task.losses(output, target)
        for part, c in client_side.views(
            self,
            "loss",
            tree,
            down,
            inputs=inputs,
            predict=self._predict,
            augment=self.setup.task.augment,
            step=step,
        ):
            losses = part.loss(losses, output, target, c)
        second = (
            self._second(losses, step, tree, down) if algorithm.having("second") else desk.g[:0]
        )
        torch.autograd.backward(losses.mean())
        return desk.g.clone(), second

    def _predict(self, inputs: Tensor) -> Tensor:
        """Return the output on other inputs, which leave no trace in the buffers."""
        copies = {name: b.clone() for name, b in self.desk.module.named_buffers()}
        output: Tensor = functional_call(self.desk.module, copies, (inputs,))
        return output

    def _second(self, losses: Tensor, step: int, tree: Tree, down: Down) -> Tensor:
        part, c = client_side.views(self, "second", tree, down, step=step)[0]
        start = part.second_from(self.layout)
        found = torch.zeros_like(self.desk.x)
        last = [
            parameter
            for slot, parameter in zip(
                self.layout.slots, self.desk.module.parameters(), strict=True
            )
            if slot.start >= start
        ]
        if last:
            grads = torch.autograd.grad(part.second(losses, c).mean(), last, retain_graph=True)
            found[start:] = torch.cat([g.reshape(-1) for g in grads])
        return found

    def facts(self, y: Tensor, buffers: Tensor, reads: frozenset[Fact]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if not reads:
            return found
        self.desk.place(y)
        self.desk.place_buffers(buffers)
        if "loss" in reads:
            found["loss"] = self._judged_loss()
        if "validation_loss" in reads:
            inputs, target = self.setup.federation.validation.client(self.client)
            found["validation_loss"] = (
                self._loss(inputs, target) if len(inputs) else self._loss(self.x, self.y)
            )
        if "lstar" in reads:
            found["lstar"] = known_lstar(self.setup)[self.client]
        if "grad" in reads:
            found["grad"] = self._full_gradient()
        return found

    def end_loss(self, y: Tensor, buffers: Tensor) -> Tensor:
        self.desk.place(y)
        self.desk.place_buffers(buffers)
        return self._judged_loss()

    def _judged_loss(self) -> Tensor:
        """Return the training loss as the algorithm judges it."""
        return judged(self.setup, self.desk.module, self.x, self.y).mean()

    def _loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return measure(self.setup.task, self.desk.module, inputs, target)["loss"].mean()

    def _full_gradient(self) -> Tensor:
        desk = self.desk
        desk.module.eval()
        desk.g.zero_()
        for rows in blocks(self.x):
            losses = self.setup.task.losses(desk.module(self.x[rows]), self.y[rows])
            torch.autograd.backward(losses.sum() / len(self.x))
        return desk.g.clone()


def fills_a_core(setup: Setup) -> bool:
    """Tell whether a step of a middling client is worth a core of its own."""
    batch = setup.solver.batch or int(np.median(setup.federation.train.sizes))
    return setup.layout.size * batch >= FILLS_A_CORE


class LoopEngine(Engine):
    """Clients one after another, or in parallel on the cores where the work is worth it."""

    name = "loop"

    def __init__(self, setup: Setup, workers: int | None = None, random: bool = False) -> None:
        super().__init__(setup)
        self.random = random
        self.workers = 1 if random else workers or self._workers()
        self._desks: queue.SimpleQueue[Desk] = queue.SimpleQueue()
        for _ in range(self.workers):
            self._desks.put(Desk(setup.module, setup.layout))
        self._pool = (
            ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
            if self.workers > 1
            else None
        )

    def _workers(self) -> int:
        if not fills_a_core(self.setup):
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return min(cores or 1, len(self.setup.federation))

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        def one(row: int, desk: Desk) -> Up:
            lane = OneClient(self.setup, desk, _row(down, row), int(clients[row]))
            with self._randomness(down, int(clients[row])):
                own = buffers[row] if buffers.dim() == 2 else buffers
                if down.phase == "probe":
                    return client_side.probe(lane, _row(down, row), own, rows_of(states, row))
                return client_side.train(lane, _row(down, row), own, rows_of(states, row))

        done = self._each(len(clients), one, down, clients)
        reports = join([up.reports for up in done], stack=True)
        if down.phase == "probe":
            return Up(reports)
        deltas = torch.stack([up.deltas for up in done if up.deltas is not None])
        ended = torch.stack([up.buffers for up in done if up.buffers is not None])
        return Up(reports, deltas, ended, join([up.states for up in done], stack=True))

    def personal(self, down: Down, clients: Ids, states: Named) -> Tensor:
        def one(row: int, desk: Desk) -> Tensor:
            lane = OneClient(self.setup, desk, down, int(clients[row]))
            return client_side.personal(lane, down, rows_of(states, row))

        return torch.stack(self._each(len(clients), one, down, clients))

    def measure(self, x: Tensor, buffers: Tensor, split: Split) -> dict[str, Tensor]:
        def one(block: int, desk: Desk) -> dict[str, Tensor]:
            desk.place(x)
            desk.place_buffers(buffers)
            rows = todo[block]
            return measure_block(self.setup.task, desk.module, split.x[rows], split.y[rows])

        todo = blocks(split.x)
        return joined(self._run(len(todo), one))

    def evaluate_own(self, split: str, clients: Ids, params: Tensor, buffers: Tensor) -> Values:
        data = getattr(self.setup.federation, split)

        def one(row: int, desk: Desk) -> dict[str, float]:
            inputs, target = data.client(int(clients[row]))
            desk.place(params[row])
            desk.place_buffers(buffers[row])
            found = measure(self.setup.task, desk.module, inputs, target)
            return {key: float(value.double().mean()) for key, value in found.items()}

        rows = self._run(len(clients), one)
        keys = dict.fromkeys(key for row in rows for key in row)
        return {key: np.asarray([row.get(key, np.nan) for row in rows]) for key in keys}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, count: int, one: Callable[[int, Desk], T], down: Down, clients: Ids) -> list[T]:
        def guarded(row: int, desk: Desk) -> T:
            try:
                return one(row, desk)
            except (InputError, ClientError):
                raise
            except Exception as error:
                name = self.setup.federation.names[int(clients[row])]
                raise blame(error, down, f"client '{name}'") from error

        return self._run(count, guarded)

    def _run(self, count: int, one: Callable[[int, Desk], T]) -> list[T]:
        def at_desk(row: int) -> T:
            desk = self._desks.get()
            try:
                return one(row, desk)
            finally:
                self._desks.put(desk)

        rows: Iterable[int] = range(count)
        return list(self._pool.map(at_desk, rows) if self._pool else map(at_desk, rows))

    def _randomness(self, down: Down, client: int) -> Any:
        """Let layers that draw random numbers draw from the client's own seed."""
        if not self.random:
            return nullcontext()
        return seeded(int(self.setup.seeds(down, np.asarray([client]), "layers")[0]))


class seeded:
    """Run with torch's generator at a seed and put its state back."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.before = torch.get_rng_state()
        torch.default_generator.manual_seed(self.seed)

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self.before)


def _row(down: Down, row: int) -> Down:
    if not down.each:
        return down
    each = {part: {k: v[row] for k, v in sent.items()} for part, sent in down.each.items()}
    return Down(down.phase, down.round, down.lr, down.x, down.buffers, down.shared, each)
