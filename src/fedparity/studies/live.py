"""How a study goes: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedparity.reports.progress import LONGEST
from fedparity.studies.schedule import Board


class Shown:
    """Shows a board whenever it changes; a context."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False) if _is_terminal() else None
        self.last, self.told = time.monotonic(), -1

    def __enter__(self) -> Shown:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, board: Board) -> None:
        """Show a board."""
        if self.live is not None:
            self.live.update(table(board), refresh=True)
            return
        now = time.monotonic()
        if board.done != self.told and now - self.last >= LONGEST:
            self.console.print(line(board), markup=False, highlight=False, soft_wrap=True)
            self.last, self.told = now, board.done


def line(board: Board) -> str:
    """Return how far a study is, in a line.

    >>> line(Board(total=9, done=3, bad=1, took=[60.0], workers=2))
    '3 of 9 runs done, 1 of them failed or diverged, 0 running, 6 left, about 3 min to go'
    """
    bad = f", {board.bad} of them failed or diverged" if board.bad else ""
    seconds = board.seconds_left
    to_go = "" if seconds is None else f", about {_duration(seconds)} to go"
    return (
        f"{board.done} of {board.total} runs done{bad}, {len(board.running)} running, "
        f"{board.left} left{to_go}"
    )


def table(board: Board) -> Table:
    """Return a row for each run under way, under a line on all of them."""
    found = Table("running", "stage", "of it", box=None, title=line(board), title_justify="left")
    for _, (name, news) in sorted(board.running.items()):
        share = f"{news['done']}/{news['total']}" if news else ""
        found.add_row(escape(name), escape(str(news.get("stage", "starting"))), share)
    return found


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _is_terminal() -> bool:
    return sys.stderr.isatty()
