"""How a run goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

PATIENCE = 2.0
"""Seconds from the start to the first plain line, and from each to the next."""
LONGEST = 10.0
"""Seconds after which there is a line even if not another tenth is done."""


class Bar:
    """A live bar for each stage of a run; implements :class:`fedparity.run.watching.Watcher`."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console or Console(stderr=True),
        )
        self.task: TaskID | None = None

    def stage(self, text: str, total: int) -> None:
        """Begin a bar in place of that of the stage before."""
        if self.task is not None:
            self.progress.remove_task(self.task)
        self.progress.start()
        self.task = self.progress.add_task(escape(text), total=total, note="")

    def advance(self, done: int, note: str = "") -> None:
        """Move the bar; the last note stays until there is a new one."""
        if self.task is None:
            return
        if note:
            self.progress.update(self.task, completed=done, note=escape(note))
        else:
            self.progress.update(self.task, completed=done)

    def tell(self, line: str) -> None:
        """Print a line above the bar."""
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.progress.stop()


class Lines:
    """Plain lines for logs: one about every tenth of a stage, none for short runs."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.last = time.monotonic()
        self.text, self.total, self.told, self.untold = "", 1, -1, ""

    def stage(self, text: str, total: int) -> None:
        """Begin a stage."""
        self._end()
        self.text, self.total, self.told = text, max(total, 1), -1

    def advance(self, done: int, note: str = "") -> None:
        """Print a line once there has been none for a while, and another tenth is done."""
        tenth, waited = 10 * done // self.total, time.monotonic() - self.last
        line = f"{self.text}: {done}/{self.total}{', ' * bool(note)}{note}"
        if waited >= (PATIENCE if tenth > self.told else LONGEST):
            self._print(line)
            self.told = tenth
        elif self.told >= 0:
            self.untold = line

    def tell(self, line: str) -> None:
        """Print a line that is no stage's."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Tell how the last stage ended, where it was told of."""
        self._end()

    def _end(self) -> None:
        if self.untold:
            self._print(self.untold)

    def _print(self, line: str) -> None:
        self.tell(line)
        self.last, self.untold = time.monotonic(), ""


def watcher() -> Bar | Lines:
    """Return a bar where standard error is a terminal, else plain lines."""
    return Bar() if sys.stderr.isatty() else Lines()
