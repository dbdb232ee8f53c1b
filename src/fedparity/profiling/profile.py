"""A few rounds of an experiment, watched phase by phase."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fedparity.engines.engine import intraop
from fedparity.method.messages import Down
from fedparity.profiling.advice import CHECKPOINT, EVALUATION, LOG, advice
from fedparity.profiling.clock import Clock, watched
from fedparity.profiling.places import places
from fedparity.records.state import RunState
from fedparity.run.driver import PAUSE, Run
from fedparity.run.experiment import Experiment
from fedparity.run.given import is_rule

WARM_UP = 2
"""Rounds that are not counted: the first ones allocate."""


@dataclass(frozen=True)
class Phase:
    """A phase and its milliseconds a round."""

    name: str
    ms: float
    share: float


@dataclass(frozen=True)
class Profile:
    """Where the time of a round goes.

    Attributes
    ----------
    phases
        Longest first; milliseconds add up to ``ms`` and shares to 1.
    ms
        Milliseconds a round while watched, with its share of evaluations and checkpoints.
    unwatched
        Milliseconds of training, without evaluation and checkpoints, when nobody looks.
    engine, reason
        The engine and why.
    parallel
        Whether clients ran side by side: then time is divided among phases in the proportions
        of what the threads did.
    advice
        Sentences for what stands out.
    """

    phases: tuple[Phase, ...]
    ms: float
    unwatched: float
    rounds: int
    engine: str
    reason: str
    parallel: bool
    advice: tuple[str, ...]


def profile(experiment: Experiment, rounds: int = 20) -> Profile:
    """Run a few rounds of an experiment in a temporary directory and tell where time went.

    L* is computed once before a run and not counted; where parts read it, a poor estimate of one
    round stands in, which costs the same to read.
    """
    searched = is_rule(experiment.lstar)
    trial = replace(experiment, lstar="best_validation(rounds=1)") if searched else experiment
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, intraop(1):
        run = Run(trial, Path(folder))
        assert run.folder is not None
        run.folder.create(trial.describe())
        state = run.open()
        try:
            unwatched = _unwatched(run, state, rounds)
            run.ahead, run.drawn = rounds, {}  # as many cohorts are drawn as rounds are watched
            with watched(clock, places(trial.setup.algorithm)):
                for _ in range(rounds):
                    run.round(state)
            training = {name: seconds / rounds for name, seconds in clock.seconds.items()}
            seconds = {**training, **_around(run, state, sum(training.values()))}
        finally:
            run.close()
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    phases = tuple(Phase(name, 1000 * s, s / total) for name, s in ordered if s > 0)
    return Profile(
        phases,
        1000 * total,
        1000 * unwatched,
        rounds,
        experiment.choice.name,
        experiment.choice.reason,
        clock.parallel,
        tuple(advice(experiment, {phase.name: phase.share for phase in phases})),
    )


def _unwatched(run: Run, state: RunState, rounds: int) -> float:
    for _ in range(WARM_UP):
        run.round(state)
    began = time.perf_counter()
    for _ in range(rounds):
        run.round(state)
    return (time.perf_counter() - began) / rounds


def _around(run: Run, state: RunState, round_: float) -> dict[str, float]:
    """Return the seconds a round of what a run does between rounds.

    Each is done once before it is timed, and divided by the rounds from one time to the next.
    """
    assert run.folder is not None
    experiment = run.experiment
    down = Down("evaluate", state.round, 0.0, state.server.x, state.server.buffers)
    splits = [s for s in ("validation", "test") if len(getattr(experiment.federation, s))]
    for _ in range(2):
        began = time.perf_counter()
        for split in splits:
            run.door.evaluate(down, split)
        evaluation = (time.perf_counter() - began) / experiment.evaluation_interval
    for _ in range(2):
        began = time.perf_counter()
        run.folder.save(state, run.history)
        checkpoint = time.perf_counter() - began
    began = time.perf_counter()
    run.folder.note(round=state.round, asked=experiment.cohort_size, seconds=0.0)
    log = time.perf_counter() - began
    every = experiment.checkpoint_every
    # Without a number of rounds a checkpoint is due some seconds after the last one.
    share = 1 / every if every is not None else (round_ + evaluation + log) / PAUSE
    return {EVALUATION: evaluation, CHECKPOINT: checkpoint * share, LOG: log}
