"""Contestants that take turns, the medians of their times and of their ratios turn by turn."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import sub, truediv

import numpy as np
from workloads import Workload

import fedparity as fp
from fedparity.engines.engine import intraop
from fedparity.run.driver import Run

TURN = 0.1
"""Seconds a turn should last: what is faster is called several times in a row."""
MOST_CALLS = 20


@dataclass(frozen=True)
class Contestant:
    """Something that does one round's work when it is called."""

    name: str
    run: Callable[[], object]
    threads: int = 1
    """Threads inside an operation; set before the clock starts."""

    def turn(self, calls: int) -> float:
        """Return the milliseconds of one call, of several in a row."""
        with intraop(self.threads):
            began = time.perf_counter()
            for _ in range(calls):
                self.run()
            return 1000 * (time.perf_counter() - began) / calls


class Times(dict[str, list[float]]):
    """Milliseconds of every contestant, turn by turn."""

    def median(self, name: str) -> float:
        """Return the median of a contestant's turns."""
        return statistics.median(self[name])

    def fastest(self, *names: str) -> str:
        """Return which of these has the smallest median."""
        return min(names, key=self.median)

    def ratio(self, one: str, other: str) -> float:
        """Return the median ratio of one's turn to the other's turn beside it.

        A machine that is slower for some seconds is slower for both.
        """
        return self.of(truediv, one, other)

    def more(self, one: str, other: str) -> float:
        """Return the median difference of one's turn and the other's turn beside it."""
        return self.of(sub, one, other)

    def of(self, function: Callable[..., float], *names: str) -> float:
        """Return the median of a function of these contestants' turns beside each other."""
        return statistics.median(map(function, *(self[name] for name in names)))


def turns(contestants: Sequence[Contestant], repeats: int, wanted: int | None = None) -> Times:
    """Return the times of every contestant's turns, warmed up once; every time they are shuffled.

    So of three or more nobody always comes after the same one, which may leave caches warm or cold,
    and nobody comes after itself. A turn is of so many calls, or of as many as fill its time.
    """
    calls: dict[str, int] = {}
    for each in contestants:
        first = each.turn(1)
        once = each.turn(1) if first < 1000 else first
        calls[each.name] = wanted or max(1, min(MOST_CALLS, round(1000 * TURN / once)))
    times = Times({each.name: [] for each in contestants})
    order, draw = list(contestants), random.Random(0)
    for _ in range(repeats):
        last = order[-1]
        draw.shuffle(order)
        while order[0] is last and len(order) > 1:
            draw.shuffle(order)
        for each in order:
            times[each.name].append(each.turn(calls[each.name]))
    return times


def turns_of(workload: Workload, repeats: int, more: int) -> int:
    """Return the turns of a workload: so many times the repeats, if a round is not seconds long."""
    return repeats if workload.model == "cnn" else more * repeats


def federation(workload: Workload) -> fp.Federation:
    """Return the workload's examples, all for training."""
    x, y, client = workload.arrays()
    split = np.full(len(y), "train")
    return fp.Federation.from_arrays(x, y, client, split, outputs=workload.outputs)


def experiment(
    workload: Workload,
    algorithm: object = "fedavg",
    data: fp.Federation | None = None,
    **more: object,
) -> fp.Experiment:
    """Return the workload as an experiment."""
    return fp.Experiment(
        federation(workload) if data is None else data,
        more.pop("model", workload.model),
        algorithm=algorithm,
        rounds=10_000,
        solver=fp.Solver(lr=0.01, steps=workload.steps, batch=workload.batch),
        **{"cohort": workload.cohort, "lstar": "none", **more},
    )


class Rounds:
    """An experiment of ours, stepped one round at a time as a run steps it."""

    def __init__(self, experiment: fp.Experiment) -> None:
        self.run = Run(experiment)
        self.state = self.run.open()

    def __call__(self) -> None:
        self.run.round(self.state)

    def close(self) -> None:
        """Give back the engine's threads."""
        self.run.close()
