"""A clock that functions wear while they are watched; nothing is slower when nobody looks."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Stack(threading.local):
    """The phases a thread is in, from the outermost: name, start, seconds of those inside."""

    def __init__(self) -> None:
        self.frames: list[list[Any]] = []


class Clock:
    """Seconds of every phase, without those of the phases inside it.

    What other threads do while the calling one waits is counted in their seconds, and the time
    waited is divided among their phases in the same proportions. So the seconds of all phases
    together are those that passed.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: Counter[str] = Counter()
        self.parallel = False
        self._now = now
        self._home = threading.get_ident()
        self._stack = _Stack()
        self._beside: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def phase(self, name: str | None) -> Iterator[None]:
        """Count what happens inside as a phase; None is to wait, in the phase one is in already."""
        self._enter(name)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, name: str | None) -> None:
        self._stack.frames.append([name, self._now(), 0.0])

    def _leave(self) -> None:
        now, frames = self._now(), self._stack.frames
        name, began, inside = frames.pop()
        if frames:
            frames[-1][2] += now - began
        self._count(name, now - began - inside)

    def _count(self, name: str | None, own: float) -> None:
        waited = name is None
        if name is None:
            around = [frame[0] for frame in self._stack.frames if frame[0] is not None]
            name = around[-1] if around else "unnamed"
        with self._lock:
            if threading.get_ident() != self._home:
                self._beside[name] += own  # type: ignore[assignment]
                return
            total = self._beside.total() if waited else 0.0
            if not total:
                self.seconds[name] += own  # type: ignore[assignment]
                return
            self.parallel = True
            for other, seconds in self._beside.items():
                self.seconds[other] += own * seconds / total  # type: ignore[assignment]
            self._beside.clear()

    def wrap(self, function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
        """Return the function, counted as a phase."""

        @functools.wraps(function)
        def timed(*args: Any, **more: Any) -> Any:
            self._enter(name)
            try:
                return function(*args, **more)
            finally:
                self._leave()

        return timed


@contextmanager
def watched(clock: Clock, places: list[tuple[Any, str, str | None]]) -> Iterator[None]:
    """Let functions wear the clock: (class or module, name of the function, phase)."""
    before = []
    try:
        for owner, name, phase in places:
            function = vars(owner)[name]
            before.append((owner, name, function))
            setattr(owner, name, clock.wrap(function, phase))
        yield
    finally:
        for owner, name, function in reversed(before):
            setattr(owner, name, function)
