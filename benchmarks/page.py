"""The page of measurements: machine, versions, date, bars, tables and the figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from report import Section, bars_markdown

DOCS = Path(__file__).parents[1] / "docs"
INTRODUCTION = (
    "Written by `python benchmarks/speed.py --write`; nothing here is typed by hand. Contestants "
    "take turns. A time is the median of the turns, a ratio the median of the ratios of turns near "
    "each other, since a machine may be slower for some seconds. The workloads are random data, "
    "FedAvg and plain SGD with fixed steps and batches. `fedparity profile EXPERIMENT` shows where "
    "the time of your own rounds goes."
)


def machine() -> str:
    """Return the processor, the cores this process may use, and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "fedparity"))
    python = f"Python {platform.python_version()}"
    return f"{processor()}, {cores} cores; {platform.system()}; {python}, {versions}"


def load() -> float:
    """Return how many processes wanted a core in the last minute, before measuring began."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def processor() -> str:
    """Return the name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def circumstances(before: float) -> str:
    """Return when and on what was measured, and the load before."""
    day = datetime.now(timezone.utc).strftime("%-d %B %Y")
    return f"{day}. {machine()}. Load of the machine before: {before:.2f}."


def text(sections: Sequence[Section], command: str, before: float) -> str:
    """Return the whole page; ``before`` is the load when measuring began."""
    parts = [
        "# Speed",
        INTRODUCTION,
        f"```console\n$ {command}\n```",
        circumstances(before),
        "## Bars",
        bars_markdown(sections),
        *(section.markdown() for section in sections),
    ]
    return "\n\n".join(parts) + "\n"


def write(sections: Sequence[Section], command: str, figure: str | None, before: float) -> None:
    """Write the page and the figure."""
    if figure is not None:
        (DOCS / "performance.svg").write_text(figure, encoding="utf-8")
    (DOCS / "performance.md").write_text(text(sections, command, before), encoding="utf-8")
