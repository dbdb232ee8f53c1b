"""Which run is next, and how far a study is.

Runs on one federation and seed share L*: the first of them finds it, and the others wait until it
is known.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedparity.studies.pool import Message
from fedparity.studies.work import Order, Outcome


@dataclass(frozen=True)
class Task:
    """A run that is left to be done."""

    name: str
    """Shown while it runs."""
    order: Order
    alone: str | None
    """The address of its L*."""


@dataclass
class Board:
    """How far a study is."""

    total: int
    done: int
    """Runs that are over, whatever became of them; those of before are counted."""
    bad: int = 0
    """Of them, those that failed or diverged."""
    running: dict[int, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """By worker: the run's name, and its last news (``stage``, ``done``, ``total``)."""
    took: list[float] = field(default_factory=list)
    """Seconds of each run that ended since."""
    workers: int = 1

    @property
    def left(self) -> int:
        """Runs that have not begun."""
        return self.total - self.done - len(self.running)

    @property
    def seconds_left(self) -> float | None:
        """About how long it goes on; None before a run has ended."""
        if not self.took:
            return None
        told = [news for _, news in self.running.values() if news.get("total")]
        under_way = sum(float(news["done"] / news["total"]) for news in told if not news["alone"])
        left = max(0.0, self.total - self.done - under_way)
        return left * sum(self.took) / len(self.took) / self.workers


class Hands(Protocol):
    """Who does runs side by side: processes here, or a cluster."""

    size: int

    def give(self, worker: int, order: Order) -> None:
        """Let a worker do a run."""

    def wait(self) -> Message:
        """Return the next news of any worker."""

    def lost(self, worker: int) -> Outcome:
        """Return what became of the run of a worker that was lost."""

    def close(self, busy: Sequence[int]) -> None:
        """End all workers; the busy ones write a last checkpoint first."""


Watch = Callable[[Board], None]
Ended = Callable[[Task, Outcome], None]


class Schedule:
    """Tasks in their order, but for those that wait for an L* that another one finds."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._left = deque(tasks)
        self._cold = {task.alone for task in self._left if task.alone is not None}
        self._seeking: set[str] = set()

    def next(self) -> Task | None:
        """Return a task that may begin, or None."""
        for place, task in enumerate(self._left):
            if task.alone not in self._seeking:
                del self._left[place]
                if task.alone in self._cold and task.alone is not None:
                    self._seeking.add(task.alone)
                return task
        return None

    def found(self, task: Task) -> None:
        """Tell that the L* of a task is known, or that nobody looks for it any more."""
        if task.alone is not None:
            self._seeking.discard(task.alone)

    def known(self, task: Task) -> None:
        """Tell that the L* of a task is on disk."""
        self.found(task)
        self._cold.discard(task.alone)


def work_off(
    tasks: Iterable[Task], pool: Hands, board: Board, ended: Ended, watch: Watch
) -> Outcome | None:
    """Do all tasks; return what stopped them before the end, a full disk, or None.

    An interrupt lets running tasks write their last checkpoint.
    """
    schedule, running = Schedule(tasks), dict[int, Task]()
    began: dict[int, float] = {}
    idle, full = set(range(pool.size)), None
    board.workers = pool.size
    try:
        while True:
            while idle and full is None and (task := schedule.next()) is not None:
                worker = min(idle)
                idle.discard(worker)
                running[worker], began[worker] = task, time.monotonic()
                board.running[worker] = (task.name, {})
                pool.give(worker, task.order)
            watch(board)
            if not running:
                return full
            worker, news = pool.wait()
            if worker not in running:  # it ended after its last run
                pool.lost(worker)
                continue
            task = running[worker]
            if news is not None and "ended" not in news:
                board.running[worker] = (task.name, news)
                if not news["alone"]:
                    schedule.known(task)
                continue
            outcome = pool.lost(worker) if news is None else Outcome(news["ended"], news["reason"])
            schedule.found(task)
            del running[worker], board.running[worker]
            idle.add(worker)
            board.took.append(time.monotonic() - began[worker])
            if outcome.state == "full":
                full = outcome
                continue
            board.done += 1
            board.bad += outcome.state != "done"
            ended(task, outcome)
    finally:
        pool.close(tuple(running))
