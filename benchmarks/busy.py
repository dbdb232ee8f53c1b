"""How much slower a round becomes when another process keeps a core busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from contest import Contestant, Rounds, Times, experiment
from report import Bar, Section, number
from workloads import WORKLOADS

SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
SLOWER = 2.3
"""How many times slower a workload may be."""


@contextmanager
def spinning() -> Iterator[None]:
    """Keep the last core busy."""
    core = max(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", SPIN, str(core)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time our rounds alone and with a core busy, in turns."""
    section = Section(
        "With a core busy",
        "Milliseconds a round of `auto`, alone and while another process spins on a core of its "
        "own, in turns.",
        ("workload", "alone", "core busy", "slower"),
    )
    for name in names:
        rounds = Rounds(experiment(WORKLOADS[name]))
        one = Contestant(name, rounds)
        one.turn(2)
        calls = max(1, round(200 / one.turn(1)))
        times = Times(alone=[], busy=[])
        for _ in range(repeats):
            times["alone"].append(one.turn(calls))
            with spinning():
                times["busy"].append(one.turn(calls))
        rounds.close()
        ratio = times.ratio("busy", "alone")
        shown = (number(times.median(when)) for when in ("alone", "busy"))
        section.rows.append((name, *shown, f"{ratio:.2f}x"))
        section.bars.append(Bar(f"{name}: slower with a core busy", ratio, SLOWER))
    return section
