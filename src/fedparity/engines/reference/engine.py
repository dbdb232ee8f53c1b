"""The reference engine: clients one after another, or side by side on the cores.

Every client is computed by one worker, with one thread inside an operation, in that worker's
workspace, so the bits do not depend on how many clients are computed at once. Where convolutions
read a full batch that is more than a worker's share, the calling thread has the lane of one client
after another, and all workers share the blocks of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.data import Split
from fedparity.engines import answer as client_side
from fedparity.engines.blame import blame
from fedparity.engines.engine import Engine, Ids, Setup, fills_a_core, join, rows_of
from fedparity.engines.evaluation import (
    Values,
    block_rows,
    evaluate_each,
    evaluated,
    joined,
    outputs_of,
)
from fedparity.engines.reference.arranging import suits_channels_last
from fedparity.engines.reference.lane import OneClient, Workspace, gradient_blocks
from fedparity.errors import ClientError, InputError
from fedparity.learning.device import wide
from fedparity.learning.task import Task
from fedparity.method.messages import Down, Named, Own, Up
from fedparity.workers import Crew, as_workers_do

T = TypeVar("T")


class LoopEngine(Engine):
    """Clients one after another, or in parallel on the cores where the work is worth it."""

    name = "loop"

    def __init__(self, setup: Setup, workers: int | None = None, random: bool = False) -> None:
        super().__init__(setup)
        self.random = random
        wanted = 1 if random else workers or self._workers()
        last = suits_channels_last(setup.module, setup.federation.train.x[:2])
        self.crew = Crew([Workspace(setup.module, setup.layout, last) for _ in range(wanted)])
        # Of the calling thread, where clients are not side by side.
        self._workspace = Workspace(setup.module, setup.layout, last)

    def _workers(self) -> int:
        return (
            min(self.setup.workers, len(self.setup.federation)) if fills_a_core(self.setup) else 1
        )

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        trains = down.phase == "train"
        together = trains and self._together(clients)
        deltas = down.x.new_empty(len(clients) if trains else 0, len(down.x))

        def one(row: int, workspace: Workspace) -> Up:
            crew, room = self.crew if together else None, deltas[row] if trains else None
            lane = OneClient(self.setup, workspace, _row(down, row), int(clients[row]), crew, room)
            with self._randomness(down, int(clients[row])):
                own = buffers[row] if buffers.dim() == 2 else buffers
                up = client_side.answer(lane, _row(down, row), own, rows_of(states, row))
            if room is None or up.deltas is None or up.deltas.dtype != room.dtype:
                return up  # of another type it is kept as it is, so that a check can tell
            if up.deltas is not room:
                room.copy_(up.deltas)
            return replace(up, deltas=None)  # what a part made of it need not be kept

        done = self._each(len(clients), one, down, clients, together)
        reports = join([up.reports for up in done], stack=True)
        if not trains:
            return Up(reports)
        if other := [up.deltas for up in done if up.deltas is not None]:
            deltas = torch.stack(other)
        ended = torch.stack([up.buffers for up in done if up.buffers is not None])
        return Up(reports, deltas, ended, join([up.states for up in done], stack=True))

    def personal(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Own:
        def one(row: int, workspace: Workspace) -> Own:
            lane = OneClient(self.setup.tuned, workspace, down, int(clients[row]))
            with self._randomness(down, int(clients[row])):
                own = buffers[row] if buffers.dim() == 2 else buffers
                return client_side.personal(lane, down, own, rows_of(states, row))

        found = self._each(len(clients), one, down, clients)
        shares = [own.shares for own in found if own.shares is not None]
        return Own(
            torch.stack([own.parameters for own in found]),
            torch.stack([own.buffers for own in found]),
            torch.stack(shares) if shares else None,
        )

    def at_modules(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]:
        def placed(piece: int, workspace: Workspace) -> T:
            workspace.place(x)
            workspace.place_buffers(buffers)
            return one(piece, workspace.module)

        return self.crew.run(count, placed)

    def evaluate_each(
        self, x: Tensor, buffers: Tensor, split: Split, outputs: bool = False
    ) -> dict[str, Tensor]:
        """Evaluate each client by itself, so that its numbers are those of a site of its own.

        Modules are set once for about as many examples as other engines evaluate in a block.
        """
        groups = _groups(split)

        def one(group: int, module: nn.Module) -> dict[str, Tensor]:
            data = (split.aligned(client) for client in groups[group])
            return joined(
                [evaluate_each(self.setup.task, module, *client, outputs) for client in data]
            )

        return joined(self.at_modules(len(groups), one, x, buffers))

    def evaluate_own(self, split: str, clients: Ids, own: Own) -> Values:
        data, task = getattr(self.setup.federation, split), self.setup.task

        def one(row: int, workspace: Workspace) -> dict[str, float]:
            inputs, target = data.aligned(int(clients[row]))
            workspace.place_buffers(own.buffers[row])
            if own.shares is None:
                workspace.place(own.parameters[row])
                found = evaluate_each(task, workspace.module, inputs, target)
            else:
                said = []
                for parameters in own.parameters[row] if len(inputs) else ():
                    workspace.place(parameters)
                    said.append(outputs_of(workspace.module, inputs))
                found = _mixed(task, said, own.shares[row], target)
            return {key: float(value.to(wide(value.device)).mean()) for key, value in found.items()}

        rows = self.crew.run(len(clients), one)
        keys = dict.fromkeys(key for row in rows for key in row)
        return {key: np.asarray([row.get(key, np.nan) for row in rows]) for key in keys}

    def close(self) -> None:
        self.crew.close()

    def _together(self, clients: Ids) -> bool:
        """Tell whether one client is more than a worker's share, so that all workers share each."""
        sizes = self.setup.federation.train.sizes[clients]
        largest = int(sizes.max())
        shared = (
            len(gradient_blocks(self.setup, self._workspace, largest)) >= 2 * self.crew.size > 2
        )
        return shared and self.setup.algorithm.trains and largest * self.crew.size > sizes.sum()

    def _each(
        self,
        count: int,
        one: Callable[[int, Workspace], T],
        down: Down,
        clients: Ids,
        together: bool = False,
    ) -> list[T]:
        def guarded(row: int, workspace: Workspace) -> T:
            try:
                return one(row, workspace)
            except (InputError, ClientError):
                raise
            except Exception as error:
                name = self.setup.federation.names[int(clients[row])]
                raise blame(error, down, f"client '{name}'") from error

        if together or self.crew.size == 1:
            with as_workers_do():
                return [guarded(row, self._workspace) for row in range(count)]
        return self.crew.run(count, guarded)

    def _randomness(self, down: Down, client: int) -> Any:
        """Let layers that draw random numbers draw from the client's own seed."""
        if not self.random:
            return nullcontext()
        seed = int(self.setup.seeds(down, np.asarray([client]), "layers")[0])
        return seeded(seed, self.setup.device)


def _mixed(task: Task, said: list[Tensor], shares: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return loss and metrics ``[B]`` of mixed outputs, or nothing where there is no example.

    ``said`` are the outputs ``[B, ...]`` at each of ``M`` parameters, ``shares`` is ``[M]``.
    """
    return evaluated(task, task.mixed(torch.stack(said), shares), y) if said else {}


class seeded:
    """Run with torch's generator at a seed, and put its state back; an accelerator has its own.

    The generator is the whole process's: no other thread may draw meanwhile.
    """

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.seed, self.device = seed, device

    def __enter__(self) -> None:
        self.before = torch.get_rng_state()
        torch.default_generator.manual_seed(self.seed)
        if self.device != "cpu":
            own = torch.get_device_module(self.device)
            self.there = own.get_rng_state()
            own.manual_seed(self.seed)

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self.before)
        if self.device != "cpu":
            torch.get_device_module(self.device).set_rng_state(self.there)


def _row(down: Down, row: int) -> Down:
    if not down.each:
        return down
    each = {part: {k: v[row] for k, v in sent.items()} for part, sent in down.each.items()}
    return replace(down, each=each)


def _groups(split: Split) -> list[list[int]]:
    """Return the clients that have examples, in order, in groups of about a block."""
    if not len(split):
        return []
    block = (split.offsets[:-1] // block_rows(split.x)).tolist()
    found: dict[int, list[int]] = {}
    for client, size in enumerate(split.sizes.tolist()):
        if size:
            found.setdefault(block[client], []).append(client)
    return list(found.values())
