"""The search itself: trials of Optuna, each a run that never sees a test example."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedparity.arguments import checked, named
from fedparity.errors import FedparityError, InputError
from fedparity.metrics.clientframe import summary_value
from fedparity.records.result import Result
from fedparity.run import lstar, lstar_cache, lstar_rules
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent, Watcher
from fedparity.tuning import aim as aims
from fedparity.tuning.space import Range, Value, read_space, with_settings

if TYPE_CHECKING:
    from optuna.trial import Trial

FIRST = 5
"""Trials that are neither guided nor pruned."""
NAME = "fedparity"


@named
@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes
    ----------
    aim
        What was asked for.
    best
        The settings that are best of those that meet every condition; None where none do.
    trials
        One row a trial: ``trial, state``, the settings, the summaries of the aim on validation
        examples, and ``missed``, by how much the worst condition is missed (0: all hold).
    references
        The same summaries of the algorithms that the aim names.
    """

    aim: aims.Aim
    best: dict[str, Value] | None
    trials: pd.DataFrame = field(repr=False)
    references: dict[str, dict[str, float]] = field(default_factory=dict)
    _experiment: Experiment | None = field(default=None, repr=False, compare=False)

    def experiment(self) -> Experiment:
        """Return the experiment that was given, with the best settings and all its data.

        A rule for L* is applied with the solver that was given, as in the search, not with the best
        one: the L* of train, validation and test examples are numbers.
        """
        if self.best is None or self._experiment is None:
            raise InputError("no trial met every condition: loosen the aim, or search more")
        return with_settings(_with_lstar(self._experiment), self.best)


@checked
def tune(
    experiment: Experiment,
    space: Mapping[str, str],
    *,
    aim: str,
    trials: int = 30,
    journal: str | Path | None = None,
    seed: int = 0,
    watch: Watcher | None = None,
) -> Tuned:
    """Search the settings of an experiment for an aim, on validation examples only.

    Parameters
    ----------
    experiment
        What is tuned: its algorithm and all that is not searched.
    space
        The values of each setting, by ``solver.lr``, ``server_lr`` or ``eagle.lam``: see
        :mod:`fedparity.tuning.space`.
    aim
        See :mod:`fedparity.tuning.aim`.
    trials
        How many in all, those in the journal counted.
    journal
        A file to which every trial is written at once, and from which a search goes on.
    seed
        Of the search; trainings keep that of the experiment.
    watch
        Told how many trials are done.

    Notes
    -----
    The test examples are taken out before the first training, so that nothing can depend on them.
    L* is found once, with the experiment's own solver: otherwise a learning rate that makes clients
    worse alone would look fair. Where the aim has no condition, unpromising trials end early: those
    whose summary is worse than the median of earlier ones at the same round. With a condition they
    do not: a model that learns nothing can have the best summary of all.
    """
    if not isinstance(experiment, Experiment):
        raise InputError(f"experiment is a {type(experiment).__name__}: give an Experiment")
    if not isinstance(space, Mapping):
        raise InputError("space is no mapping: give values by name, {'solver.lr': '0.01,0.1'}")
    optuna = _optuna()
    ranges = read_space(space)
    wanted = aims.read(aim, experiment.summaries)
    if trials < 1:
        raise InputError(f"trials is a whole number of at least 1, got {trials}")
    blind = _blind(experiment)
    for name, each in ranges.items():
        with_settings(blind, {name: _one(each)})  # a wrong name or value is told at once
    others = {of: dataclasses.replace(blind, algorithm=of) for of in wanted.references}
    watch = watch or Silent()
    watch.stage("references", len(others) + 1)
    fixed = _with_lstar(blind)
    watch.advance(1)
    references = {}
    for done, (of, other) in enumerate(others.items(), 2):
        other = dataclasses.replace(other, lstar=fixed.lstar)
        result = other.run(watch=Silent())
        if result.diverged is not None:
            raise InputError(f"{of} diverged, so nothing can be judged against it: take a lower lr")
        references[of] = _numbers(result, wanted)
        watch.advance(done)
    study = _begun(wanted, None if journal is None else Path(journal))
    _same_search(study, fixed, space, wanted)
    finished = _finished(study)
    study.sampler = optuna.samplers.TPESampler(seed=seed + finished, n_startup_trials=FIRST)
    watch.stage("trials", trials)
    watch.advance(finished)

    def objective(trial: Trial) -> float:
        values = {name: each.draw(trial, name) for name, each in ranges.items()}
        made = with_settings(fixed, values)
        result = made.run(watch=Silent(), track=(_pruning(trial, fixed, wanted),))
        if result.diverged is not None:
            raise optuna.TrialPruned
        numbers = _numbers(result, wanted)
        missed = [c.excess(numbers, references) for c in wanted.conditions]
        trial.set_user_attr("numbers", numbers)
        trial.set_user_attr("missed", max([0.0, *missed]))
        for condition, by in zip(wanted.conditions, missed, strict=True):
            trial.set_constraint(f"{condition.summary} {condition.of or ''}".strip(), by)
        watch.advance(_finished(study) + 1)
        return numbers[wanted.summary]

    study.optimize(objective, n_trials=max(0, trials - finished))
    return _told(study, wanted, references, experiment)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise FedparityError("tuning needs Optuna: pip install 'fedparity[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _begun(wanted: aims.Aim, journal: Path | None) -> Any:
    """Return the search of a journal, or a new one."""
    optuna = _optuna()
    storages = optuna.storages
    storage = None
    try:
        if journal is not None:
            journal.parent.mkdir(parents=True, exist_ok=True)
            backend = storages.journal.JournalFileBackend(str(journal))
            storage = storages.JournalStorage(backend)
        return optuna.create_study(
            study_name=NAME,
            storage=storage,
            load_if_exists=True,
            direction="minimize" if wanted.better == "lower" else "maximize",
            pruner=_pruner(wanted),
        )
    except OSError as error:
        raise InputError(f"cannot write {journal}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # ValueError: no JSON
        raise InputError(
            f"{journal} is no journal of a search, or damaged ({error}): name a new file"
        ) from None


def _pruner(wanted: aims.Aim) -> Any:
    pruners = _optuna().pruners
    return pruners.NopPruner() if wanted.conditions else pruners.MedianPruner(FIRST)


def _blind(experiment: Experiment) -> Experiment:
    """Return the experiment without its test examples."""
    federation = experiment.federation
    if not len(federation.validation):
        raise InputError("tuning judges on validation examples, and there are none: see fractions")
    none = np.zeros(len(federation) + 1, dtype=np.int64)
    test = federation.test
    empty = dataclasses.replace(
        test,
        x=test.x[:0],
        y=test.y[:0],
        offsets=none,
        groups={k: g[:0] for k, g in test.groups.items()},
    )
    bare = dataclasses.replace(federation, test=empty, recipe=None, whole=None)
    told = experiment.lstar
    if isinstance(told, dict):
        told = {
            name: {s: v for s, v in by.items() if s != "test"} if isinstance(by, dict) else by
            for name, by in told.items()
        }
    return dataclasses.replace(
        experiment, federation=bare, lstar=told, unseen=None, predictions=False
    )


def _with_lstar(given: Experiment) -> Experiment:
    """Return the experiment with its L* as numbers, so that no solver moves them."""
    if given.given is not None or given.lstar == "none":
        return given
    found = lstar_cache.cached(given.setup, lstar_rules.rule(str(given.lstar)), given.choice.name)
    splits = [s for s in lstar.SPLITS if s != "test" or len(given.federation.test)]
    return dataclasses.replace(given, lstar=found[["client", *splits]])


def _numbers(result: Result, wanted: aims.Aim) -> dict[str, float]:
    return {n: summary_value(result.frame, n, split="validation") for n in wanted.summaries}


def _pruning(trial: Trial, fixed: Experiment, wanted: aims.Aim) -> Any:
    """Return a tracker that reports the summary after each evaluation, and ends poor trials."""
    import optuna

    summary = fixed.summaries[wanted.summary]
    names, sizes = fixed.federation.names, fixed.federation.validation.sizes
    given = None if fixed.given is None else fixed.given["validation"].to_numpy(dtype=float)
    metric = {"gap": "loss", "loss": "loss", "accuracy": "accuracy"}.get(summary.column)

    def tell(told: Mapping[str, float]) -> None:
        found = [told.get(f"validation/{metric}/client/{name}", np.nan) for name in names]
        values = np.asarray(found, dtype=float)
        if summary.column == "gap" and given is not None:
            values = values - given
        there = ~np.isnan(values)
        if metric is None or not there.any():
            return
        scale = 100 if metric == "accuracy" else 1
        number = summary.statistic(scale * values[there], sizes[there].astype(float))
        if np.isfinite(number):
            trial.report(float(number), int(told["round"]))
            if trial.should_prune():
                raise optuna.TrialPruned

    return tell


def _same_search(study: Any, fixed: Experiment, space: Mapping[str, str], aim: aims.Aim) -> None:
    """Refuse a journal of another search: its trials would be taken for ours."""
    identity = {**fixed.identity(), "rounds": fixed.rounds}
    about = json.dumps([dict(space), aim.text, identity], sort_keys=True, default=str)
    mine = hashlib.sha256(about.encode()).hexdigest()
    kept = study.user_attrs.get("search")
    if kept is None:
        study.set_user_attr("search", mine)
    elif kept != mine:
        raise InputError(
            "the journal is of another search (other data, settings, space or aim): name a new file"
        )


def _finished(study: Any) -> int:
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def _told(
    study: Any, wanted: aims.Aim, references: dict[str, dict[str, float]], experiment: Experiment
) -> Tuned:
    rows, best = [], None
    sign = 1 if wanted.better == "lower" else -1
    for trial in study.get_trials(deepcopy=False):
        numbers, missed = trial.user_attrs.get("numbers", {}), trial.user_attrs.get("missed")
        state = trial.state.name.lower()
        rows.append(
            {"trial": trial.number, "state": state, **trial.params, **numbers, "missed": missed}
        )
        value = numbers.get(wanted.summary, np.nan)
        if state == "complete" and missed == 0 and (best is None or sign * value < best[0]):
            best = (sign * value, dict(trial.params))
    return Tuned(
        wanted, None if best is None else best[1], pd.DataFrame(rows), references, experiment
    )


def _one(each: Range) -> Value:
    if each.listed:
        return each.listed[0]
    return int(each.low) if each.whole else each.low
