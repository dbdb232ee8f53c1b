"""A run in a process of its own, to be killed: ``victim.py FOLDER HOW``.

It says every finished round on its standard output. ``HOW`` is ``wait`` (go on until a signal
comes) or the number of the rename of a checkpoint at which the process kills itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fedparity.learning.solver import Solver
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients

ROUNDS = 27
VICTIM = __file__


def experiment(rounds: int = ROUNDS) -> Experiment:
    return Experiment(
        unlike_clients(),
        "mlp(hidden=4)",
        "eagle(lam=0.1)+momentum",
        rounds=rounds,
        solver=Solver(lr=0.05, steps=2, batch=3),
        lstar="best_validation(rounds=3)",
        cohort=3,
        checkpoint_every=3,
        evaluate_every=5,
    )


class Telling(Silent):
    """Says every round, and waits to be told to go on past the twentieth."""

    def advance(self, done: int, note: str = "") -> None:
        print(done, flush=True)
        if done == 20:
            sys.stdin.readline()


def launched(folder: Path) -> subprocess.Popen[str]:
    """Start this file as a process of its own, which waits after round 20 for a line."""
    return subprocess.Popen(
        [sys.executable, VICTIM, str(folder), "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], round: int) -> None:
    """Read what the process says until it has finished this round of its rounds."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(int(line))
        # L* is told first, up to 3; then the rounds from 0.
        if said[-1] == round and round > 3:
            return
    raise AssertionError(f"the run ended after {said}: {process.communicate()[1]}")


def main(folder: str, how: str) -> None:
    if how != "wait":
        rename, count = Path.rename, 0

        def dying(self: Path, target: Path) -> Path:
            nonlocal count
            count += self.name.startswith("checkpoint")
            if count == int(how):
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)

        Path.rename = dying  # type: ignore[method-assign]
    experiment().run(out=folder, watch=Telling() if how == "wait" else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
