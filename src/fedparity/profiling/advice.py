"""What a user could change, said where a known mistake shows in the numbers."""

from __future__ import annotations

from collections.abc import Mapping

from fedparity.engines import choice
from fedparity.profiling import places
from fedparity.run.experiment import Experiment

EVALUATION = "evaluation"
CHECKPOINT = "checkpoint"
LOG = "log"
LARGE = 0.3
"""Share of the time from which something is worth a word."""
LARGE_CHECKPOINT = 0.1
ARITHMETIC = (
    places.FORWARD,
    places.BACKWARD,
    places.FUSED,
    places.STEP,
    places.UPDATE,
    places.LOSSES,
    places.SERVER,
    EVALUATION,
)
"""Phases that compute: the rest of a round moves data, plans and keeps books."""


def advice(experiment: Experiment, shares: Mapping[str, float]) -> list[str]:
    """Return sentences for what stands out; at least one."""
    found = [*_engine(experiment), *_driver(experiment, shares), *_work(experiment, shares)]
    if found:
        return found
    share = sum(shares.get(name, 0.0) for name in ARITHMETIC)
    return [f"Nothing stands out: {share:.0%} of the time is arithmetic."]


def _engine(experiment: Experiment) -> list[str]:
    chosen, better = experiment.choice.name, choice.choose(experiment.setup, experiment.cohort_size)
    if experiment.conditions.engine == "auto" or better.name == chosen:
        return []
    return [
        f"Engine '{chosen}' was asked for by name; auto would take '{better.name}': "
        f"{better.reason}."
    ]


def _driver(experiment: Experiment, shares: Mapping[str, float]) -> list[str]:
    found = []
    evaluation, checkpoint = shares.get(EVALUATION, 0.0), shares.get(CHECKPOINT, 0.0)
    if evaluation >= LARGE:
        every = experiment.evaluation_interval
        now = "every round" if every == 1 else f"every {every} rounds"
        found.append(
            f"Evaluation takes {evaluation:.0%} of the time: raise evaluate-every (now {now})."
        )
    if checkpoint >= LARGE_CHECKPOINT:
        remedy = (
            "raise checkpoint-every, or leave it out (then every 10 seconds)"
            if experiment.checkpoint_every is not None
            else "set checkpoint-every to more rounds than 10 seconds hold"
        )
        found.append(f"Checkpoints take {checkpoint:.0%} of the time: {remedy}.")
    return found


def _work(experiment: Experiment, shares: Mapping[str, float]) -> list[str]:
    found = []
    losses = shares.get(places.LOSSES, 0.0)
    if losses >= LARGE:
        found.append(
            f"The loss pass takes {losses:.0%} of the time: '{experiment.setup.algorithm.text}' "
            "asks every client for its loss over all its examples, whatever the local work."
        )
    plans = shares.get(places.PLANNING, 0.0) + shares.get(places.GATHERING, 0.0)
    if plans >= LARGE:
        found.append(
            f"Batches take {plans:.0%} of the time to choose and gather: fewer, larger steps would "
            "spend more of it on training."
        )
    hooks = {name: share for name, share in shares.items() if ": " in name}
    slowest = max(hooks, key=lambda name: hooks[name], default="")
    if slowest and hooks[slowest] >= LARGE:
        found.append(f"'{slowest}' takes {hooks[slowest]:.0%} of the time.")
    if experiment.dtype == "float64":
        found.append("Numbers are float64, which doubles arithmetic and memory: float32 is usual.")
    return found
