"""Workers on the cores, each with a workspace that it alone may overwrite while it has it."""

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
"""Results that a worker may have ready, or be computing, before the caller takes them."""


def cores() -> int:
    """Return how many cores this process may use."""
    share = os.environ.get(CORES, "")
    if share.isdecimal() and int(share):
        return int(share)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew(Generic[W]):
    """As many workers as workspaces: the calling thread is one, the others are threads of a pool.

    The calling thread computes too, because one that only waited would give up a core that it holds
    already, and two threads that wake at once may share the other core for a while. Every worker
    has one thread inside an operation, so that what it computes does not depend on how many workers
    there are.

    A call of ``one(piece, workspace)`` may run on any of these threads and overwrite its workspace,
    which no other call has meanwhile. Results are handed over in the order of the pieces.

    Parameters
    ----------
    workspaces
        What each worker may overwrite. With a single one there are no further threads; several
        callers may then use the crew at once only if the calls write to nothing of it.
    """

    def __init__(self, workspaces: Sequence[W]) -> None:
        self._free: queue.SimpleQueue[W] = queue.SimpleQueue()
        for workspace in workspaces:
            self._free.put(workspace)
        self.size, self._first = len(workspaces), workspaces[0]
        torch.get_num_threads()  # or the calling thread would take the number of the workers
        self._pool = (
            ThreadPoolExecutor(self.size - 1, initializer=_new_thread) if workspaces[1:] else None
        )

    def run(self, count: int, one: Callable[[int, W], T]) -> list[T]:
        """Return ``one(piece, workspace)`` of every piece of work, in order."""
        return list(self.begin(count, one).results())

    def begin(self, count: int, one: Callable[[int, W], T]) -> Job[T]:
        """Let the pool begin what :meth:`run` does, and return at once.

        A single piece is left to the thread that asks for its result.
        """
        job = Job(partial(self._in_workspace, one))
        for piece in range(count):
            job.hand_out(piece, self._pool if count > 1 else None)
        return job

    def stream(self, count: int, one: Callable[[int, W], T]) -> Iterator[T]:
        """Yield what :meth:`run` returns, with few results in memory at once."""
        held = min(count, HELD * self.size)
        job = self.begin(held, one)
        for piece, found in enumerate(job.results(), held):
            if piece < count:
                job.hand_out(piece, self._pool)
            yield found

    def _in_workspace(self, one: Callable[[int, W], T], piece: int) -> T:
        if self._pool is None:  # callers on several threads may share the one workspace
            return one(piece, self._first)
        workspace = self._free.get()
        try:
            return one(piece, workspace)
        finally:
            self._free.put(workspace)

    def close(self) -> None:
        """End the threads of the pool; pieces that nobody has begun are dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class Job(Generic[T]):
    """Pieces of work, and their results in order, which can be read once.

    Threads of the pool take pieces from the front; the thread that reads the results does the same
    while it waits.
    """

    def __init__(self, do: Callable[[int], T]) -> None:
        self._do = do
        self._left: deque[tuple[int, Future[T]]] = deque()
        self._ahead: deque[Future[T]] = deque()

    def hand_out(self, piece: int, pool: ThreadPoolExecutor | None) -> None:
        """Offer a piece to the pool; the thread that waits for results may take it first."""
        self._ahead.append(Future())
        self._left.append((piece, self._ahead[-1]))
        if pool is not None:
            pool.submit(self._next)

    def results(self) -> Iterator[T]:
        """Yield the results in order; once a piece that failed is reached, no other is begun."""
        try:
            while self._ahead:
                yield self._wait()
        finally:
            self.call_off()

    def call_off(self) -> None:
        """Drop the pieces that nobody has begun; those under way end unread."""
        self._left.clear()
        self._ahead.clear()

    def _wait(self) -> T:
        """Return the next result, doing other pieces until it is there.

        It is a function of its own so that the profiler can time it.
        """
        with as_workers_do():
            while not self._ahead[0].done() and self._next():
                pass
        return self._ahead.popleft().result()

    def _next(self) -> bool:
        """Do the first piece that nobody has begun, on this thread; tell whether there was one."""
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
    """Let a new thread of the pool have one thread inside an operation.

    It asks for its number first: a thread that never asked takes the number set last by any other.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


@contextmanager
def as_workers_do() -> Iterator[None]:
    """Let the calling thread compute as a thread of the pool would, so that results are the same.

    Its operations have one thread each, and none of the modes that it is in: no inference mode, no
    autocast, and gradients are recorded. All is as before at the end.
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
