"""What a run tells of every round: to Python's logger, and to trackers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedparity.metrics import Metric
from fedparity.reports.tracking import Told, Track, Tracking, Values, numbers_of, trackers

LOGGER = logging.getLogger("fedparity.run")


class Telling:
    """The trackers of a run, and the numbers of an evaluation that they were not told of yet."""

    def __init__(self, track: Track, names: tuple[str, ...], own: tuple[Metric, ...] = ()) -> None:
        self.trackers, self.names, self.own = trackers(track), names, own
        self.fresh: Mapping[str, Values] = {}

    @contextmanager
    def open(self, settings: Mapping[str, Any], directory: Path | None) -> Iterator[None]:
        """Open the trackers, and close them whatever happens."""
        with ExitStack() as stack:
            for tracker in self.trackers:
                if isinstance(tracker, Tracking):
                    tracker.begin(settings, directory)
                    stack.callback(tracker.close)
            yield

    def round(
        self, round: int, numbers: Told, parts: Mapping[str, Mapping[str, float]], note: str = ""
    ) -> Told:
        """Tell of a round; return the summaries of its evaluation, if it had one."""
        if round:
            asked, answered = (int(numbers[name]) for name in ("asked", "answered"))
            evaluated = f", {note}" if note else ""
            LOGGER.info("round %d: %d of %d clients answered%s", round, answered, asked, evaluated)
        fresh, self.fresh = self.fresh, {}
        found, each = numbers_of(fresh, self.names, self.own)
        if self.trackers:
            own = {f"{part}/{name}": v for part, told in parts.items() for name, v in told.items()}
            for tracker in self.trackers:
                tracker({"round": round, **numbers, **own, **found, **each})
        return found
