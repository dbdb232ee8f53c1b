"""Who watches a run: told of its stages; and Ctrl-C, which asks it to stop after a round."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Watcher(Protocol):
    """Whoever wants to know how a run goes."""

    def stage(self, text: str, total: int) -> None:
        """Tell that a stage of ``total`` steps begins."""

    def advance(self, done: int, note: str = "") -> None:
        """Tell how many steps of the stage are done."""


class Silent:
    """A watcher that says nothing."""

    def stage(self, text: str, total: int) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        pass


@contextmanager
def interruptible() -> Iterator[Any]:
    """Turn a first Ctrl-C into a request to stop after the round; a second one stops at once."""
    asked = False

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
