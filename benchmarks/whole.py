"""A whole ``fedparity run``: how much of it is arithmetic.

    python benchmarks/whole.py DIRECTORY ROUNDS

runs the mlp workload on random images under the clock and prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from report import Bar, Section, number

ROUNDS, EVERY, RUNS = 2000, 10, 3
SHARE = 90.0
FLAGS = (
    *("--data", "mnist(normalise=true)", "--partition", "iid", "--clients", "100"),
    *("--model", "mlp", "--cohort", "10", "--lr", "0.01", "--steps", "10", "--batch", "50"),
    *("--evaluate-every", str(EVERY), "--lstar", "none"),
)


def write_images(folder: Path) -> None:
    """Write random images in the format and number of MNIST's."""
    raw, rng = folder / "MNIST" / "raw", np.random.default_rng(0)
    raw.mkdir(parents=True)
    for part, n in (("train", 60_000), ("t10k", 10_000)):
        pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, n, dtype=np.uint8)
        for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (raw / f"{part}-{name}-ubyte").write_bytes(head + array.tobytes())


def watched_run(folder: Path, rounds: int) -> None:
    """Run the command line under the clock in this process and tell seconds by phase."""
    from fedparity.cli import main
    from fedparity.cli.entry import SELDOM

    gc.set_threshold(SELDOM)  # the command does so before it imports what is watched here
    from fedparity.clients.door import Simulation
    from fedparity.data.dataset import Dataset
    from fedparity.profiling.clock import Clock, watched
    from fedparity.profiling.places import places
    from fedparity.recipes import algorithm
    from fedparity.records.rundir import RunDir

    clock = Clock()
    more = [
        (Dataset, "split", "dealing the examples"),
        (Simulation, "evaluate", "evaluation"),
        (RunDir, "save", "checkpoint"),
        (RunDir, "note", "log"),
    ]
    out = ["--out", str(folder / "run"), "--data-dir", str(folder), "--rounds", str(rounds)]
    with watched(clock, [*places(algorithm("fedavg")), *more]):
        try:
            main(["run", *FLAGS, *out])
        except SystemExit as end:
            if end.code:
                raise
    print(json.dumps(dict(clock.seconds)), flush=True)


class Whole(NamedTuple):
    """A run of the command in a process of its own."""

    seconds: float
    """From the start of the process to its end."""
    phases: dict[str, float]
    """Seconds of its phases, and of all else."""

    @staticmethod
    def of(rounds: int) -> Whole:
        """Run the command in a new directory."""
        with tempfile.TemporaryDirectory() as name:
            write_images(Path(name))
            command = [sys.executable, __file__, name, str(rounds)]
            # As for an installed package, Python keeps what it has compiled.
            here = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=here)
            whole = time.perf_counter() - began
        phases: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        phases["start-up, reading, reports and all else"] = whole - sum(phases.values())
        return Whole(whole, phases)

    def share(self, phases: Sequence[str]) -> float:
        """Return the share of some phases in the whole, in percent."""
        return 100 * sum(self.phases.get(phase, 0.0) for phase in phases) / self.seconds


def measure(rounds: int = ROUNDS) -> Section:
    """Run the command and compare its phases with its whole time."""
    from fedparity.profiling.advice import ARITHMETIC
    from fedparity.profiling.places import COPYING, GATHERING

    Whole.of(1)
    runs = [Whole.of(rounds) for _ in range(RUNS)]
    shares = ", ".join(f"{run.share(ARITHMETIC):.1f}" for run in runs)
    middle = sorted(runs, key=lambda run: run.share(ARITHMETIC))[RUNS // 2]
    wider = middle.share((*ARITHMETIC, COPYING, GATHERING))
    section = Section(
        "A whole run",
        f"`fedparity run` of the mlp workload on random images: {rounds} rounds, evaluation of all "
        f"clients on validation and test every {EVERY}, from the start of the process to its end "
        f"({middle.seconds:.1f} s). Of {RUNS} runs ({shares} %) the one with the median share of "
        "arithmetic is shown and counts; one of a single round comes before, so that the disk is "
        "read and our Python compiled once for all. Arithmetic is the time inside forward and "
        "backward passes, steps, updates, their average and evaluations, as `fedparity profile` "
        "measures them (the Python of these functions included; clients run side by side; the "
        "first step writes every client's own parameters, so no copy comes before it). With "
        "gathering batches and handing out the model, which the hand-written "
        f"arithmetic does too, it is {wider:.1f} %.",
        ("phase", "seconds", "share"),
    )
    for phase, value in sorted(middle.phases.items(), key=lambda item: -item[1]):
        section.rows.append((phase, number(value), f"{value / middle.seconds:.1%}"))
    bare = middle.share(ARITHMETIC)
    section.bars.append(
        Bar(f"{rounds} mlp rounds: share of arithmetic", bare, SHARE, at_least=True, unit=" %")
    )
    return section


if __name__ == "__main__":
    watched_run(Path(sys.argv[1]), int(sys.argv[2]))
