"""Many small models at once: chunks of clients, each computed as one stack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.core import client as client_side
from fedparity.core.client import Down, Named, Up
from fedparity.core.crew import Crew, cores
from fedparity.core.solver import BatchPlan
from fedparity.data import Split
from fedparity.engines.blame import blame
from fedparity.engines.chain import Chain, Standing
from fedparity.engines.evaluation import Values, block_rows, losses_block
from fedparity.engines.full import FullBatches, reads_in_place
from fedparity.engines.judging import judged
from fedparity.engines.setup import FILLS_A_CORE, Engine, Ids, Setup, join, rows_of
from fedparity.engines.stack import Stack
from fedparity.errors import ClientError, InputError

T = TypeVar("T")
FLOATS = 1 << 25
"""Numbers a chunk may hold at once (parameters, gradients and inputs of its clients)."""

PLANNED = 1 << 20
"""Examples in the plan of a round, or permuted for it, up to which all are planned at once."""

SHARE = 1 << 19
"""Input numbers of a block of the loss pass: a cohort has little, and every worker wants some."""


class VmapEngine(Engine):
    """Chunks of clients, of similar size where they are padded, each computed as one stack."""

    name = "vmap"

    def __init__(self, setup: Setup, chunk: int | None = None) -> None:
        super().__init__(setup)
        self.chunk = chunk or stack_width(setup)
        self.chain = Chain.of(setup)
        self.in_place = reads_in_place(setup)
        self._step = setup.layout.size * _batch(setup)
        # Lifting swaps parameters inside the module, so every worker has one of its own.
        self.crew = Crew(
            [replace(setup, module=copy.deepcopy(setup.module)) for _ in range(cores())]
        )

    def _chunks(self, clients: Ids) -> list[Ids]:
        """Return rows of the cohort in chunks, similar sizes together where they are padded."""
        count = len(clients)
        least = max(1, -(-count // self.chunk))
        if self.in_place:
            return np.array_split(np.arange(count), least)
        order = np.argsort(self.setup.federation.train.sizes[clients], kind="stable")
        worth = min(self.crew.size, count * self._step // FILLS_A_CORE, count)
        return np.array_split(order, max(least, worth))

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        facts = self._facts(down, clients, buffers)
        plan = self._plan(down, clients)
        chunks = self._chunks(clients)
        deltas = down.x.new_empty(len(clients), len(down.x) if down.phase == "train" else 0)
        sums = deltas.new_empty(len(clients))
        widths = [len(rows) for rows in chunks]
        rooms, totals = torch.split(deltas, widths), torch.split(sums, widths)

        def one(chunk: int, setup: Setup) -> Up:
            rows, room = chunks[chunk], rooms[chunk]
            up = self._chunk(setup, down, clients, rows, room, buffers, states, facts, plan)
            if up.deltas is not None:
                torch.sum(up.deltas, 1, out=totals[chunk])
                if up.deltas is not room:
                    room.copy_(up.deltas)
            return up

        try:
            if self.in_place:  # all workers are on one chunk
                done = [one(chunk, self.setup) for chunk in range(len(chunks))]
            else:
                done = self.crew.run(len(chunks), one)
        except (InputError, ClientError):
            raise
        except Exception as error:
            raise blame(error, down, "a stack of clients (engine 'loop' names one)") from error
        order = np.concatenate(chunks)
        back = None if (order[1:] > order[:-1]).all() else torch.from_numpy(np.argsort(order))
        reports = in_order([up.reports for up in done], back)
        if down.phase == "probe":
            return Up(reports)
        kept = in_order([up.states for up in done], back)
        ended = torch.cat([_some(up.buffers) for up in done])
        if back is not None:
            deltas, ended, sums = deltas[back], ended[back], sums[back]
        return Up(reports, deltas, ended, kept, sums)

    def _chunk(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        rows: Ids,
        room: Tensor,
        buffers: Tensor,
        states: Named,
        facts: dict[str, Tensor] | None,
        plan: BatchPlan | None,
    ) -> Up:
        these = torch.from_numpy(rows)
        each = {part: {k: v[these] for k, v in sent.items()} for part, sent in down.each.items()}
        own = Down(down.phase, down.round, down.lr, down.x, down.buffers, down.shared, each)
        known = None if facts is None else {key: value[these] for key, value in facts.items()}
        if plan is not None:
            sizes = setup.federation.train.sizes[clients[rows]]
            steps = int(setup.lengths(clients[rows]).max())
            plan = plan.of(rows, steps, setup.solver.width(sizes))
        lane = self._lane(setup, own, clients[rows], known, room, plan)
        mine = buffers[these] if buffers.dim() == 2 else buffers
        if down.phase == "probe":
            return client_side.probe(lane, own, mine, rows_of(states, these))
        return client_side.train(lane, own, mine, rows_of(states, these))

    def _lane(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        facts: dict[str, Tensor] | None = None,
        room: Tensor | None = None,
        plan: BatchPlan | None = None,
    ) -> Stack:
        if self.in_place and self.chain is not None:
            return FullBatches(setup, down, clients, facts, self.chain, room, self.crew)
        return Stack(setup, down, clients, facts, self.chain, room, plan)

    def _plan(self, down: Down, clients: Ids) -> BatchPlan | None:
        """Plan the batches of all at once, unless that takes much memory.

        Planning is many short operations: workers side by side would wait for each other.
        """
        setup, solver = self.setup, self.setup.solver
        if down.phase != "train" or solver.batch is None or not setup.algorithm.trains:
            return None
        sizes = setup.federation.train.sizes[clients]
        planned = len(sizes) * int(setup.lengths(clients).max()) * solver.width(sizes)
        if max(planned, int(self._permuted[clients].sum())) > PLANNED:
            return None
        return solver.batches(setup.seeds(down, clients, "batches"), sizes)

    @cached_property
    def _permuted(self) -> Ids:
        """The numbers that each client's permutations of a round hold."""
        sizes, lengths = self.setup.federation.train.sizes, self.setup.solver.lengths
        return sizes * -(-lengths(sizes) // -(-sizes // _batch(self.setup)))

    def _facts(self, down: Down, clients: Ids, buffers: Tensor) -> dict[str, Tensor] | None:
        """Measure losses in one pass over pooled examples, if all start from the same model."""
        algorithm, federation = self.setup.algorithm, self.setup.federation
        if buffers.dim() == 2 or algorithm.having("start"):
            return None
        reads = algorithm.probe_reads if down.phase == "probe" else algorithm.train_reads
        found: dict[str, Tensor] = {}
        if "loss" in reads:
            found["loss"] = self._pooled(down, clients, "train", judge=True)
        if "validation_loss" in reads:
            value = self._pooled(down, clients, "validation")
            absent = torch.from_numpy(federation.validation.sizes[clients] == 0)
            if absent.any():
                value = torch.where(absent, self._pooled(down, clients, "train"), value)
            found["validation_loss"] = value
        return found

    def _pooled(self, down: Down, clients: Ids, split: str, judge: bool = False) -> Tensor:
        data: Split = getattr(self.setup.federation, split)
        rows, owner = rows_of_clients(data, clients)
        work = torch.split(rows, block_rows(data.x, SHARE)) if len(rows) else ()
        judge = judge and bool(self.setup.algorithm.having("judge"))

        def one(block: int, module: nn.Module) -> Tensor:
            inputs, target = (examples(v, work[block]) for v in (data.x, data.y))
            if judge:
                return judged(self.setup, module, inputs, target)
            return losses_block(self.setup.task, module, inputs, target)

        found = self.at_modules(len(work), one, down.x, down.buffers)
        each = torch.cat(found).double().numpy() if found else np.zeros(0)
        sums = np.bincount(owner, weights=each, minlength=len(clients))
        with np.errstate(invalid="ignore", divide="ignore"):
            return torch.from_numpy(sums / data.sizes[clients]).to(down.x.dtype)

    def at_modules(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]:
        if self.chain is not None:
            model = Standing(self.chain, tuple(self.setup.layout.views(x)))
            return self.crew.run(count, lambda piece, _: one(piece, model))
        return self.crew.run(
            count,
            lambda piece, setup: one(piece, setup.layout.write(setup.module, x, buffers)),
        )

    def close(self) -> None:
        self.crew.close()

    def personal(self, down: Down, clients: Ids, states: Named) -> Tensor:
        lane = self._lane(self.setup, down, clients)
        return client_side.personal(lane, down, states)

    def evaluate_own(self, split: str, clients: Ids, params: Tensor, buffers: Tensor) -> Values:
        data: Split = getattr(self.setup.federation, split)
        found: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
        down = Down("evaluate", 0, 0.0, params[0], buffers[0])
        for start in range(0, len(clients), self.chunk):
            part = slice(start, start + self.chunk)
            stack = self._lane(self.setup, down, clients[part])
            sums = stack.own_sums(split, params[part], buffers[part])
            for key, value in sums.items():
                column = found.setdefault(key, np.full(len(clients), np.nan))
                with np.errstate(invalid="ignore", divide="ignore"):
                    column[part] = value.numpy() / data.sizes[clients[part]]
        return found


def stack_width(setup: Setup) -> int:
    """Return how many clients fit into one stack."""
    inputs = 0 if reads_in_place(setup) else _batch(setup) * int(np.prod(setup.federation.shape))
    return max(1, FLOATS // (4 * setup.layout.size + inputs))


def _batch(setup: Setup) -> int:
    return setup.solver.batch or int(setup.federation.train.sizes.max())


def in_order(trees: list[Named], back: Tensor | None) -> Named:
    """Return the rows of all chunks, joined, in the order of the cohort."""
    found = trees[0] if len(trees) == 1 else join(trees, stack=False)
    return found if back is None else rows_of(found, back)


def _some(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def examples(values: Tensor, rows: Tensor) -> Tensor:
    """Return these rows, ascending, as a view where they lie side by side."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return values[first : last + 1]
    return values.index_select(0, rows)


def rows_of_clients(data: Split, clients: Ids) -> tuple[Tensor, Ids]:
    """Return the rows of the given clients and, for each, its place in ``clients``."""
    sizes = data.sizes[clients]
    owner = np.repeat(np.arange(len(clients)), sizes)
    first = np.repeat(data.offsets[clients] - np.cumsum(sizes) + sizes, sizes)
    return torch.from_numpy(first + np.arange(len(owner))), owner
