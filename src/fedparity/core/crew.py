"""Workers side by side on the cores, each at a desk of its own."""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import torch

D = TypeVar("D")
T = TypeVar("T")
HELD = 2
"""Pieces a worker may have ready, or under way, before they are used."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew(Generic[D]):
    """As many workers as desks; one desk needs no thread.

    A worker has one thread inside an operation, so that what it computes does not depend on how
    many others there are.
    """

    def __init__(self, desks: Sequence[D]) -> None:
        self._free: queue.SimpleQueue[D] = queue.SimpleQueue()
        for desk in desks:
            self._free.put(desk)
        self.size, self._first = len(desks), desks[0]
        # A thread that never asked for its number of threads would take that of the workers.
        torch.get_num_threads()
        self._pool = (
            ThreadPoolExecutor(self.size, initializer=torch.set_num_threads, initargs=(1,))
            if self.size > 1
            else None
        )

    def run(self, count: int, one: Callable[[int, D], T]) -> list[T]:
        """Return ``one(piece, desk)`` of every piece of work, in order."""
        if self._pool is None or count < 2:
            return [self._at_desk(one, piece) for piece in range(count)]
        return list(self._pool.map(partial(self._at_desk, one), range(count)))

    def stream(self, count: int, one: Callable[[int, D], T]) -> Iterator[T]:
        """Yield what :meth:`run` returns, with few pieces in memory at once."""
        if self._pool is None or count < 2:
            yield from (self._at_desk(one, piece) for piece in range(count))
            return
        ahead: deque[Future[T]] = deque()
        try:
            for piece in range(count):
                if len(ahead) == HELD * self.size:
                    yield self._wait(ahead)
                ahead.append(self._pool.submit(self._at_desk, one, piece))
            while ahead:
                yield self._wait(ahead)
        finally:
            for future in ahead:
                future.cancel()

    def _wait(self, ahead: deque[Future[T]]) -> T:
        """Return the next piece; a name of its own to be watched by."""
        return ahead.popleft().result()

    def _at_desk(self, one: Callable[[int, D], T], piece: int) -> T:
        if self._pool is None:  # its desk is that of whoever calls, who may be several
            return one(piece, self._first)
        desk = self._free.get()
        try:
            return one(piece, desk)
        finally:
            self._free.put(desk)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
