"""A process that does runs one after another: orders come in as lines of JSON, news go out so.

It is started as a program, ``python -m fedparity.studies.worker``: no script of the user's is
imported again, and nothing is pickled.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

from fedparity.run.lstar import ALONE

PAUSE = 0.2
"""Seconds between two news of the same stage."""


class News:
    """Tells how a run goes, as lines; implements :class:`fedparity.run.watching.Watcher`."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.text, self.total, self.last = "", 0, 0.0
        self.alone = False

    def stage(self, text: str, total: int) -> None:
        """Tell that a stage begins."""
        self.alone = text.startswith(ALONE)
        self.text, self.total, self.last = text, total, 0.0
        self.advance(0)

    def advance(self, done: int, note: str = "") -> None:
        """Tell how far it is, now and then."""
        now = time.monotonic()
        if now - self.last >= PAUSE:
            self.last = now
            self.tell(stage=self.text, done=done, total=self.total, alone=self.alone)

    def tell(self, **news: Any) -> None:
        """Write a line."""
        self.out.write(json.dumps(news) + "\n")
        self.out.flush()


def main() -> None:
    """Do orders until there are no more."""
    from fedparity.studies.work import Order, Outcome, perform

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything else prints is no news
    news = News(out)
    for line in sys.stdin:
        try:
            ended = perform(Order.read(line), news)
        except KeyboardInterrupt:
            ended = Outcome("stopped")
        news.tell(ended=ended.state, reason=ended.reason)
        if ended.state == "stopped":
            break


if __name__ == "__main__":
    main()
