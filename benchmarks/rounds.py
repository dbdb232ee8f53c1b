"""Time a FedAvg round of each engine against a plain PyTorch loop on the same work, in one run.

    python benchmarks/rounds.py [WORKLOAD ...] [--repeats N]

The contestants alternate; the median of the repeats is shown, and the ratio to the plain loop with
one thread or with all, whichever is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, PlainLoop, Workload

import fedparity as fp
from fedparity.core.run import Run
from fedparity.engines.setup import intraop


class Rounds:
    """An experiment of ours, stepped one round at a time."""

    def __init__(self, experiment: fp.Experiment) -> None:
        self.run = Run(experiment)
        self.state = self.run.open()

    def __call__(self) -> None:
        with intraop(1):
            self.run.round(self.state)


class OneThread:
    """A contestant with one thread inside an operation."""

    def __init__(self, runner: Callable[[], None]) -> None:
        self.runner = runner

    def __call__(self) -> None:
        with intraop(1):
            self.runner()


def contestants(workload: Workload) -> dict[str, Callable[[], None]]:
    chosen = workload.experiment().choice
    ours = {"loop": Rounds(workload.experiment(engine="loop"))}
    if workload.name != "cnn":
        ours["vmap"] = Rounds(workload.experiment(engine="vmap"))
    print(f"{workload.name}: auto takes {chosen.name} ({chosen.reason})")
    plain = PlainLoop(workload.experiment())
    return {"plain": plain, "plain, one thread": OneThread(plain), **ours}


def measure(workload: Workload, repeats: int) -> dict[str, float]:
    """Return the median milliseconds a round of every contestant."""
    runners = contestants(workload)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for repeat in range(repeats + 1):
        for name, runner in runners.items():
            began = time.perf_counter()
            runner()
            if repeat:
                times[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["lin", "mlp"], metavar="WORKLOAD")
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    table = Table(title=f"ms a round, {os.cpu_count()} cores, torch {torch.__version__}")
    for column in ("workload", "plain loop", "loop", "vmap", "plain / loop", "plain / vmap"):
        table.add_column(column, justify="right")
    for name in asked.workloads:
        found = measure(WORKLOADS[name], asked.repeats)
        plain = min(found["plain"], found["plain, one thread"])
        loop, vmap = found["loop"], found.get("vmap", float("nan"))
        table.add_row(
            name,
            f"{plain:.1f}",
            f"{loop:.1f}",
            f"{vmap:.1f}",
            f"{plain / loop:.2f}",
            f"{plain / vmap:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
