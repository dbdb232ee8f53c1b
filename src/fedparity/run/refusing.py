"""Refusals before the first round: what cannot be run, and what parts have against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedparity.errors import InputError, unknown
from fedparity.learning.solver import Solver
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric
from fedparity.run import lstar, lstar_rules
from fedparity.run.conditions import Stop

if TYPE_CHECKING:
    from fedparity.run.experiment import Experiment


def check_kinds(solver: object, stop: object, metrics: object) -> None:
    """Refuse what is no solver, no condition to stop and no metrics."""
    if not isinstance(solver, Solver):
        raise InputError(f"solver is {str(solver)[:80]!r}: give fp.Solver(lr=0.1, epochs=1)")
    if not isinstance(stop, Stop | None):
        raise InputError(f"stop is {str(stop)[:80]!r}: give fp.Stop('mean_loss', patience=5)")
    if not isinstance(metrics, str | Metric | list | tuple):
        raise InputError(f"metrics is {str(metrics)[:80]!r}: give names, such as ['auc', 'f1']")


OF_CLASSES = frozenset({"accuracy", "label_counts", "right"})
"""Facts that only examples of one class each have."""


def check_settings(experiment: Experiment) -> None:
    """Refuse settings that do not go together."""
    assert isinstance(experiment.algorithm, Algorithm)
    for metric in experiment.watched():
        if metric not in experiment.summaries:
            raise unknown("summary", metric, ["last", *experiment.summaries])
        summary = experiment.summaries[metric]
        if summary.better is None:
            raise InputError(f"'{metric}' is only counted: no value of it is better")
        if summary.column in ("gap", "lstar") and experiment.lstar == "none":
            raise InputError(f"'{metric}' needs L*: lstar must not be 'none'")
        if summary.column in ("gap", "lstar") and not experiment.knows_lstar("validation"):
            raise InputError(f"'{metric}' needs L* on validation, which lstar does not give")
        if not len(experiment.federation.validation):
            raise InputError(f"'{metric}' is watched on validation examples, and there are none")
    if experiment.conditions.min_replies > experiment.cohort_size:
        raise InputError(
            f"min_replies is {experiment.min_replies}, but only {experiment.cohort_size} clients "
            "are asked"
        )
    experiment.drawing.check(experiment.population)
    reading = {fact for part in experiment.algorithm.parts for fact in part.reads}
    if experiment.lstar == "none" and "lstar" in reading:
        raise InputError(f"'{experiment.algorithm.text}' needs L*: lstar must not be 'none'")
    if "lstar" in reading and experiment.given is not None:
        unknown_ = np.flatnonzero(np.isnan(lstar.deciding(experiment.given)))
        if len(unknown_):
            raise InputError(
                f"'{experiment.algorithm.text}' needs L* on validation examples, on training ones "
                f"where a client has none: lstar gives no such number for client "
                f"'{experiment.federation.names[unknown_[0]]}'"
            )
    if experiment.given is None and experiment.lstar != "none":
        lstar_rules.rule(str(experiment.lstar))


def check_parts(experiment: Experiment) -> None:
    """Raise all that parts have against this experiment at once."""
    everyone = experiment.cohort_size == len(experiment.federation) and not experiment.drop
    everyone = everyone and not experiment.drawing.absence
    context = experiment.context(experiment.setup.layout.read(experiment.setup.module)[0])
    problems = []
    own = [p.name for p in experiment.setup.algorithm.parts if p.personalises]
    buffers = experiment.setup.local_buffers and experiment.setup.layout.buffers
    if experiment.keep != "last" and (own or buffers):
        problems.append(
            f"keep='{experiment.keep}' keeps shared parameters, but clients are evaluated with "
            f"what {own[0] if own else 'buffers'!r} keeps on them: use keep='last'"
        )
    for part in experiment.setup.algorithm.parts:
        if "full_participation" in part.needs and not everyone:
            problems.append(
                f"'{part.name}' needs every client in every round: leave cohort, drop "
                "and absences out"
            )
        if "plain_sgd" in part.needs and not experiment.solver.plain:
            problems.append(
                f"'{part.name}' needs plain SGD: no momentum, weight decay, clipping or Adam"
            )
        wanted = part.reads.union(*part.points.values()) & OF_CLASSES
        if wanted and experiment.setup.task.predicts in ("values", "survival"):
            problems.append(
                f"'{part.name}' goes by classes that are right or counted, and "
                f"'{experiment.setup.task.name}' has none: use a method that goes by losses"
            )
            continue
        if experiment.cohort_size < part.fewest:
            problems.append(
                f"'{part.name}' needs at least {part.fewest} clients a round, and "
                f"{experiment.cohort_size} are asked: ask more, or change its settings"
            )
        if absent := sorted(part.group_kinds - context.groups.keys()):
            problems.append(_no_groups(part.name, absent[0], list(experiment.federation.groups)))
            continue
        try:
            part.validate(context)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("; ".join(problems))


def _no_groups(part: str, kind: str, known: Sequence[str]) -> str:
    """Return why a part that goes by groups cannot run, and what to do."""
    if known:
        return (
            f"'{part}' goes by groups of the kind '{kind}', and the federation has "
            f"{', '.join(known)}: write {part}(group={known[0]})"
        )
    return (
        f"'{part}' goes by groups inside clients, and the federation has none: name their columns "
        "(groups=['sex'])"
    )
