"""Training of coalitions: the same experiment, with the data of some clients only."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from fedparity.arguments import checked
from fedparity.errors import InputError
from fedparity.joining.game import Losses
from fedparity.joining.groups import members, trained
from fedparity.joining.outcome import Coalitions
from fedparity.metrics import Split
from fedparity.records.result import Result
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent, Watcher


@checked
def coalitions(
    experiment: Experiment | Callable[[int], Experiment],
    *,
    seeds: int | Iterable[int] = 3,
    split: Split = "test",
    confidence: float = 0.95,
    watch: Watcher | None = None,
    resplit: bool = False,
    keep: Callable[[pd.DataFrame], None] | None = None,
) -> Coalitions:
    """Train every coalition of clients, and tell what each client gets in each of them.

    Of more than ten clients, coalitions are sampled: see
    :func:`fedparity.joining.groups.trained`.

    Parameters
    ----------
    experiment
        The experiment with all clients; or a function of the seed that returns it, which may draw
        the data anew, so that the intervals cover that chance too.
    seeds
        How many, from 0; or the seeds themselves. One seed gives numbers and no verdicts.
    split
        On which examples a client judges the models.
    confidence
        Of the intervals; verdicts have the same over all clients, or all groups, together.
    watch
        Told how many trainings are done.
    resplit
        Whether the function splits the same examples anew for each seed. Such splits overlap, so
        the intervals are wider: see :func:`fedparity.joining.verdicts.interval`.
    keep
        Called with the rows of :meth:`Coalitions.table` of each training as soon as it is done.
    """
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(map(int, seeds))
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError("seeds are at least one number, each once")
    if not 0.5 < confidence < 1:
        raise InputError(f"confidence is above 0.5 and below 1, got {confidence:g}")
    wholes = [_of_seed(experiment, seed) for seed in chosen]
    names = wholes[0].federation.names
    plan = [trained(len(names), seed) for seed in chosen]
    for whole in wholes:
        if whole.federation.names != names:
            raise InputError("the clients must be the same on every seed")
        _check(whole, split)
        for alone in range(len(names)):  # what a method has against one client is told at once
            _part(whole, 1 << alone)
    watch = watch or Silent()
    watch.stage("coalitions", sum(map(len, plan)))
    losses: list[Losses] = []
    done = diverged = 0
    for whole, groups in zip(wholes, plan, strict=True):
        of_seed = {}
        for group in groups:
            result = _trained(whole, group)
            of_seed[group] = np.full(len(names), np.nan)
            of_seed[group][list(members(group))] = result.clients[f"{split}_loss"]
            diverged += result.diverged is not None
            if keep is not None:
                seed, one = chosen[len(losses)], {group: of_seed[group]}
                keep(Coalitions(names, (seed,), (one,), split).table())
            done += 1
            watch.advance(done)
        losses.append(of_seed)
    sizes = wholes[0].federation.sizes()
    overlap = float(sizes[f"n_{split}"].sum() / sizes["n_train"].sum()) if resplit else 0.0
    return Coalitions(names, chosen, tuple(losses), split, confidence, diverged, overlap)


def _of_seed(experiment: Experiment | Callable[[int], Experiment], seed: int) -> Experiment:
    if isinstance(experiment, Experiment):
        return lean(dataclasses.replace(experiment, seed=seed))
    if not callable(experiment):
        what = type(experiment).__name__
        raise InputError(f"experiment is a {what}: give an Experiment, or a function of the seed")
    made = experiment(seed)
    if not isinstance(made, Experiment):
        raise InputError(f"the function of the seed returned a {type(made).__name__}")
    return lean(made)


def _check(whole: Experiment, split: Split) -> None:
    sizes = whole.federation.sizes()
    empty = sizes.loc[sizes[f"n_{split}"] == 0, "client"]
    if len(empty):
        raise InputError(
            f"client '{empty.iloc[0]}' has no {split} examples and cannot judge a model: leave it "
            "out by federation.only(...), or take another split"
        )


def lean(whole: Experiment) -> Experiment:
    """Return the experiment without what coalitions do not read, such as L* for gaps."""
    watched = whole.stop is not None or whole.keep != "last"
    reads = any("lstar" in part.reads for part in whole.setup.algorithm.parts)
    if (reads or watched) and whole.given is not None:
        raise InputError("coalitions take a rule for L*, not numbers: they are others in each")
    return dataclasses.replace(
        whole,
        federation=dataclasses.replace(whole.federation, whole=None),
        unseen=None,
        predictions=False,
        lstar=whole.lstar if reads or watched else "none",
        evaluate_every=whole.evaluate_every if watched else whole.rounds,
    )


def _part(whole: Experiment, group: int) -> Experiment:
    names = [whole.federation.names[k] for k in members(group)]
    cohort = whole.cohort
    if cohort is not None and cohort > 1:
        cohort = min(int(cohort), len(names))
    few = min(whole.min_replies, len(names))
    return dataclasses.replace(
        whole,
        federation=whole.federation.only(*names),
        cohort=cohort,
        min_replies=few,
    )


def _trained(whole: Experiment, group: int) -> Result:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* diverged: ")  # counted, and told once
        return _part(whole, group).run(watch=Silent())
