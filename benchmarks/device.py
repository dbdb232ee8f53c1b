"""Many devices: what a large population costs a round, the start and the memory."""

from __future__ import annotations

from dataclasses import replace

import memory
from contest import Contestant, Rounds, experiment, turns
from report import Bar, Section, number
from workloads import WORKLOADS

POPULATIONS = (1_000, 10_000, 100_000)
SLOWER, START, GROWTH = 1.3, 10.0, 1.5
MB = 1e6
MORE = 10
"""Times the repeats of other sections: a turn is a tenth of a second."""


def measure(repeats: int) -> Section:
    """Time rounds of the same cohort in populations of several sizes; weigh them in processes."""
    section = Section(
        "Many devices",
        "The device workload in populations of several sizes. Rounds alternate in one process; "
        "start-up (federation, experiment, engine) and memory are those of a process each, above "
        "what imports take. *Peak* includes the user's own arrays. Memory should grow with the "
        f"data, read here as at most {GROWTH:g} bytes a byte of data; a copy of the model a client "
        "would add what the last column says.",
        ("clients", "ms a round", "start, s", "data, MB", "memory, MB", "peak, MB", "models, MB"),
    )
    runs = {n: Rounds(experiment(replace(WORKLOADS["device"], clients=n))) for n in POPULATIONS}
    entrants = [Contestant(f"{n:,}", runner) for n, runner in runs.items()]
    times = turns(entrants, MORE * repeats)
    for runner in runs.values():
        runner.close()
    weights = {n: memory.ask("device", n) for n in POPULATIONS}
    for n, found in weights.items():
        bytes_ = (found[key] for key in ("data", "resident", "peak", "model"))
        cells = (f"{b / MB:.0f}" for b in bytes_)
        ms = times.median(f"{n:,}")
        section.rows.append((f"{n:,}", number(ms), number(found["seconds"]), *cells))
    few, many = POPULATIONS[0], POPULATIONS[-1]
    grown = (weights[many]["resident"] - weights[few]["resident"]) / (
        weights[many]["data"] - weights[few]["data"]
    )
    slower = times.ratio(f"{many:,}", f"{few:,}")
    section.bars += [
        Bar(f"device: round at {many:,} to {few:,}", slower, SLOWER),
        Bar(f"device: start-up at {many:,}", weights[many]["seconds"], START, unit=" s"),
        Bar("device: memory a byte of data", grown, GROWTH),
    ]
    return section
