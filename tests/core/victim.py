"""A run in a process of its own, to be killed: ``victim.py FOLDER HOW``.

It says every finished round on its standard output. ``HOW`` is ``wait`` (go on until a signal
comes) or the number of the rename of a checkpoint at which the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fedparity.core.experiment import Experiment
from fedparity.core.run import Silent
from fedparity.core.solver import Solver
from fedparity.testing import unlike_clients

ROUNDS = 40


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
