"""Many small models at once: chunks of clients, each computed as one stack ``[m, ...]``.

The calling thread orders the clients, plans their batches and lays out views; then every chunk is
computed by one worker, in its own copy of the model, which it may overwrite. Chunks write their
updates to disjoint rows of one tensor ``[m, d]`` of the exchange.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.data import Split
from fedparity.engines import answer as client_side
from fedparity.engines.blame import blame
from fedparity.engines.engine import FILLS_A_CORE, Engine, Ids, Setup, join, rows_of
from fedparity.engines.evaluation import Values
from fedparity.engines.kernels.chain import Chain, ChainModel
from fedparity.engines.stacked.batches import Batches, Group, Slotted
from fedparity.engines.stacked.in_place import FullBatches, reads_in_place
from fedparity.engines.stacked.lane import Stack, Work
from fedparity.engines.stacked.measuring import Facts
from fedparity.engines.stacked.pooled import poolable, pooled_facts
from fedparity.errors import ClientError, InputError
from fedparity.method.messages import Down, Named, Own, Up
from fedparity.workers import Crew

T = TypeVar("T")
FLOATS = 1 << 25
"""Numbers a chunk may hold at once (parameters, gradients and inputs of its clients)."""

PLANNED = 1 << 20
"""Examples in the plan of a round, or permuted for it, up to which all are planned at once."""

VIEWS = 1 << 12
"""Steps, or slots, of all chunks up to which they are laid out at once: each is a view or two."""


class VmapEngine(Engine):
    """Chunks of clients, of similar size where they are padded, each computed as one stack.

    Of a single chunk, and where full batches are read in place, the lane is on the calling thread;
    in the second case all workers compute the blocks of its batch.
    """

    name = "vmap"

    def __init__(self, setup: Setup, chunk: int | None = None) -> None:
        super().__init__(setup)
        self.chunk = chunk or stack_width(setup)
        self.chain = Chain.of(setup)
        self.in_place = reads_in_place(setup)
        self._step = setup.layout.size * _batch(setup)
        sizes = setup.federation.train.sizes
        self._equal = bool((sizes == sizes[0]).all())
        # Lifting swaps parameters inside the module, so every worker has one of its own.
        self.crew = Crew(
            [replace(setup, module=copy.deepcopy(setup.module)) for _ in range(setup.workers)]
        )

    def ask(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Up:
        pooled = self.pooled(down, clients, buffers)
        order = self._order(clients)
        if order is None:
            return self._in_chunks(down, clients, buffers, states, pooled)
        rows, back = torch.from_numpy(order), torch.from_numpy(np.argsort(order))
        down = replace(down, each=rows_of(down.each, rows))
        pooled = _of(pooled, rows)
        own = buffers[rows] if buffers.dim() == 2 else buffers
        up = self._in_chunks(down, clients[order], own, rows_of(states, rows), pooled)
        deltas, ended, sums = (
            None if found is None else found[back] for found in (up.deltas, up.buffers, up.sums)
        )
        return Up(rows_of(up.reports, back), deltas, ended, rows_of(up.states, back), sums)

    def _order(self, clients: Ids) -> Ids | None:
        """Return the order ``[m]`` in which sizes ascend; None if they do, or need no padding."""
        if self.in_place or self._equal:
            return None
        order = np.argsort(self.setup.federation.train.sizes[clients], kind="stable")
        return None if (order[1:] > order[:-1]).all() else order

    def _chunks(self, count: int) -> list[slice]:
        """Return the rows of every chunk of so many clients."""
        chunks = max(1, -(-count // self.chunk))
        if not self.in_place:
            chunks = max(chunks, min(self.crew.size, count * self._step // FILLS_A_CORE, count))
        least, more = divmod(count, chunks)
        ends = accumulate((least + (chunk < more) for chunk in range(chunks)), initial=0)
        return [slice(*both) for both in pairwise(ends)]

    def _in_chunks(
        self,
        down: Down,
        clients: Ids,
        buffers: Tensor,
        states: Named,
        pooled: Facts | None,
    ) -> Up:
        """Return the answers of clients ``[m, ...]``, computed in chunks of neighbours."""
        chunks = self._chunks(len(clients))
        deltas = down.x.new_empty(len(clients), len(down.x) if down.phase == "train" else 0)
        sums = deltas.new_empty(len(clients))

        def one(chunk: int, setup: Setup) -> Up:
            who, work = chunks[chunk], works[chunk]
            if down.phase == "train" and work.room is None:
                work = work._replace(room=Slotted.of(setup.layout, deltas[who]))
            own = replace(down, each=rows_of(down.each, who)) if down.each else down
            lane = self._lane(setup, own, clients[who], _of(pooled, who), work)
            mine = buffers[who] if buffers.dim() == 2 else buffers
            up = client_side.answer(lane, own, mine, rows_of(states, who))
            if up.deltas is None:
                return up
            assert work.room is not None
            torch.sum(up.deltas, 1, out=sums[who])
            if up.deltas is not work.room.flat:
                work.room.flat.copy_(up.deltas)
            return up

        try:
            # What is many short operations is done here: workers side by side would wait for each
            # other.
            works = self._works(down, clients, chunks, deltas)
            if self.in_place or len(chunks) == 1:
                done = [one(chunk, self.setup) for chunk in range(len(chunks))]
            else:
                done = self.crew.run(len(chunks), one)
        except (InputError, ClientError):
            raise
        except Exception as error:
            raise blame(error, down, "a stack of clients (engine 'loop' names one)") from error
        reports = joined([up.reports for up in done])
        if down.phase != "train":
            return Up(reports)
        ended = deltas[:, :0]
        if self.setup.layout.buffers:
            ended = torch.cat([_some(up.buffers) for up in done])
        return Up(reports, deltas, ended, joined([up.states for up in done]), sums)

    def _works(self, down: Down, clients: Ids, chunks: list[slice], deltas: Tensor) -> list[Work]:
        """Return what every chunk starts from, where its updates go, and what its steps read.

        Updates go to rows of ``deltas [m, d]``; all starts are views of one vector.
        """
        layout, widths = self.setup.layout, [who.stop - who.start for who in chunks]
        by_width = {m: Slotted.of(layout, down.x.expand(m, -1)) for m in set(widths)}
        starts = [by_width[m] for m in widths]
        if down.phase != "train":
            return [Work(start) for start in starts]
        rooms: Sequence[Slotted | None] = [None] * len(chunks)
        if len(chunks) * len(layout.slots) <= VIEWS:
            rooms = Slotted.of(layout, deltas).split(widths)
        planned = self._planned(down, clients, chunks)
        return [Work(*each) for each in zip(starts, rooms, planned, strict=True)]

    def _planned(self, down: Down, clients: Ids, chunks: list[slice]) -> Iterable[Batches | None]:
        """Plan the batches of all chunks at once; None of a chunk leaves that to its worker."""
        setup, solver, data = self.setup, self.setup.solver, self.setup.federation.train
        if solver.batch is None or not setup.algorithm.trains:
            return [None] * len(chunks)
        sizes, lengths = data.sizes[clients], setup.lengths(clients)
        longest, width = int(lengths.max()), solver.width(sizes)
        large = max(len(sizes) * longest * width, int(self._permuted[clients].sum())) > PLANNED
        if large or len(chunks) * longest > VIEWS:
            return [None] * len(chunks)
        plan = solver.batches(setup.seeds(down, clients, "batches"), sizes)
        assert plan is not None
        groups = [Group(who, int(lengths[who].max()), solver.width(sizes[who])) for who in chunks]
        return Batches.by_group(data, clients, plan, groups, solver.expected, down.x.dtype)

    def _lane(
        self,
        setup: Setup,
        down: Down,
        clients: Ids,
        pooled: Facts | None = None,
        work: Work | None = None,
    ) -> Stack:
        if self.in_place and self.chain is not None:
            return FullBatches(setup, down, clients, pooled, self.chain, work, self.crew)
        return Stack(setup, down, clients, pooled, self.chain, work)

    @cached_property
    def _permuted(self) -> Ids:
        """How many numbers each client's permutations of a round hold, ``[K]``."""
        sizes, lengths = self.setup.federation.train.sizes, self.setup.solver.lengths
        return sizes * -(-lengths(sizes) // -(-sizes // _batch(self.setup)))

    def pooled(self, down: Down, clients: Ids, buffers: Tensor) -> Facts | None:
        """Return facts ``[m, ...]`` that are means over examples, measured in one pass.

        All workers share the examples. None where no part reads such a fact, or where clients start
        from unlike models.
        """
        algorithm = self.setup.algorithm
        reads = {
            "probe": algorithm.probe_reads,
            "train": algorithm.train_reads,
            "losses": frozenset({"loss"}),
        }[down.phase]
        if not reads or buffers.dim() == 2 or algorithm.having("start"):
            return None
        if not poolable(self.setup, reads):
            return None
        return pooled_facts(self.setup, reads, down, clients, self.at_modules)

    def at_modules(
        self, count: int, one: Callable[[int, nn.Module], T], x: Tensor, buffers: Tensor
    ) -> list[T]:
        if self.chain is not None:
            model = ChainModel(self.chain, tuple(self.setup.layout.views(x)))
            return self.crew.run(count, lambda piece, _: one(piece, model))
        return self.crew.run(
            count,
            lambda piece, setup: one(piece, setup.layout.write(setup.module, x, buffers)),
        )

    def close(self) -> None:
        self.crew.close()

    def personal(self, down: Down, clients: Ids, buffers: Tensor, states: Named) -> Own:
        chunks = [slice(0, len(clients))]
        if self.setup.algorithm.tuning:  # then a chunk holds inputs and gradients as well
            chunks = self._chunks(len(clients))
        found = []
        for who in chunks:
            lane = self._lane(self.setup.tuned, down, clients[who])
            own = (buffers[who] if buffers.dim() == 2 else buffers).expand(len(clients[who]), -1)
            found.append(client_side.personal(lane, down, own, rows_of(states, who)))
        shares = [own.shares for own in found if own.shares is not None]
        return Own(
            torch.cat([own.parameters for own in found]),
            torch.cat([own.buffers for own in found]),
            torch.cat(shares) if shares else None,
        )

    def evaluate_own(self, split: str, clients: Ids, own: Own) -> Values:
        data: Split = getattr(self.setup.federation, split)
        found: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
        x = own.parameters.view(-1, self.setup.layout.size)[0]
        down = Down("losses", 0, 0.0, x, own.buffers[0])
        for start in range(0, len(clients), self.chunk):
            part = slice(start, start + self.chunk)
            stack = self._lane(self.setup, down, clients[part])
            shares = None if own.shares is None else own.shares[part]
            sums = stack.own_sums(split, own.parameters[part], own.buffers[part], shares=shares)
            for key, value in sums.items():
                column = found.setdefault(key, np.full(len(clients), np.nan))
                with np.errstate(invalid="ignore", divide="ignore"):
                    column[part] = value.cpu().numpy() / data.sizes[clients[part]]
        return found


def stack_width(setup: Setup) -> int:
    """Return how many clients fit into one stack."""
    inputs = 0 if reads_in_place(setup) else _batch(setup) * int(np.prod(setup.federation.shape))
    return max(1, FLOATS // (4 * setup.layout.size + inputs))


def _batch(setup: Setup) -> int:
    return setup.solver.batch or int(setup.federation.train.sizes.max())


def joined(trees: list[Named]) -> Named:
    """Return the rows of all chunks, one behind the other: ``[m, ...]`` again."""
    return trees[0] if len(trees) == 1 else join(trees, stack=False)


def _of(pooled: Facts | None, rows: Tensor | slice) -> Facts | None:
    """Return the facts of these clients."""
    return None if pooled is None else {key: value[rows] for key, value in pooled.items()}


def _some(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
