"""Workers on the cores, each with a workspace that no other worker writes to."""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Generic, TypeVar

import torch

W = TypeVar("W")
T = TypeVar("T")
CORES = "FEDPARITY_CORES"
"""A variable of the environment that gives a process its share of the cores."""
HELD = 2
"""Pieces a worker may have ready, or under way, before they are used."""


def cores() -> int:
    """Return how many cores this process may use."""
    share = os.environ.get(CORES, "")
    if share.isdecimal() and int(share):
        return int(share)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew(Generic[W]):
    """As many workers as workspaces: the calling thread is one, the others are of a pool.

    A caller who only waited would leave a core that it holds already, and two threads that wake at
    once may share the other one for a while. A worker has one thread inside an operation, so that
    what it computes does not depend on how many others there are.
    """

    def __init__(self, workspaces: Sequence[W]) -> None:
        self._free: queue.SimpleQueue[W] = queue.SimpleQueue()
        for workspace in workspaces:
            self._free.put(workspace)
        self.size, self._first = len(workspaces), workspaces[0]
        torch.get_num_threads()  # or whoever calls would take the number of the workers
        self._pool = (
            ThreadPoolExecutor(self.size - 1, initializer=_new_thread) if workspaces[1:] else None
        )

    def run(self, count: int, one: Callable[[int, W], T]) -> list[T]:
        """Return ``one(piece, workspace)`` of every piece of work, in order."""
        return list(self.begin(count, one).results())

    def begin(self, count: int, one: Callable[[int, W], T]) -> Job[T]:
        """Let the others begin what :meth:`run` does; a single piece is left to whoever waits."""
        job = Job(partial(self._in_workspace, one))
        for piece in range(count):
            job.hand_out(piece, self._pool if count > 1 else None)
        return job

    def stream(self, count: int, one: Callable[[int, W], T]) -> Iterator[T]:
        """Yield what :meth:`run` returns, with few pieces in memory at once."""
        held = min(count, HELD * self.size)
        job = self.begin(held, one)
        for piece, found in enumerate(job.results(), held):
            if piece < count:
                job.hand_out(piece, self._pool)
            yield found

    def _in_workspace(self, one: Callable[[int, W], T], piece: int) -> T:
        if self._pool is None:  # of the calling thread; callers may be several
            return one(piece, self._first)
        workspace = self._free.get()
        try:
            return one(piece, workspace)
        finally:
            self._free.put(workspace)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class Job(Generic[T]):
    """Pieces of work handed out, and their results in order, to be read once."""

    def __init__(self, do: Callable[[int], T]) -> None:
        self._do = do
        self._left: deque[tuple[int, Future[T]]] = deque()
        self._ahead: deque[Future[T]] = deque()

    def hand_out(self, piece: int, pool: ThreadPoolExecutor | None) -> None:
        """Let the pool have a piece, unless whoever waits for it is there first."""
        self._ahead.append(Future())
        self._left.append((piece, self._ahead[-1]))
        if pool is not None:
            pool.submit(self._next)

    def results(self) -> Iterator[T]:
        """Yield what pieces gave; when one that failed is reached, no other is begun."""
        try:
            while self._ahead:
                yield self._wait()
        finally:
            self.call_off()

    def call_off(self) -> None:
        """Begin no other piece; there is nothing more to wait for."""
        self._left.clear()
        self._ahead.clear()

    def _wait(self) -> T:
        """Return the next result, and work meanwhile; the profiler times this function."""
        with as_workers_do():
            while not self._ahead[0].done() and self._next():
                pass
        return self._ahead.popleft().result()

    def _next(self) -> bool:
        """Do the first piece that nobody has begun; tell whether there was one."""
        try:
            piece, future = self._left.popleft()
        except IndexError:
            return False
        try:
            future.set_result(self._do(piece))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):  # an interrupt, not the piece's own
                raise
        return True


def _new_thread() -> None:
    """Give a new thread its number of threads inside an operation.

    One that has not asked for its number takes what any other was given last.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


@contextmanager
def as_workers_do() -> Iterator[None]:
    """Let whoever calls compute as a new thread would, so that it does not show who did a piece.

    Operations have one thread each, and no mode that the caller is in.
    """
    with ExitStack() as stack:
        threads = torch.get_num_threads()
        if threads != 1:
            stack.callback(torch.set_num_threads, threads)
            torch.set_num_threads(1)
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        yield
