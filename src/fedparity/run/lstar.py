"""L*: the best loss a client reaches alone, the zero of every loss gap.

Each client trains the same architecture alone, from the shared start, with the experiment's solver,
until its own loss says that it is done. That is the part ``local``; this module watches it, client
by client, so that a client's number depends neither on who else is there nor on how long, in which
cohorts or with which algorithm the federation trains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fedparity.engines import choice
from fedparity.engines.engine import Engine, Ids, Setup
from fedparity.learning.seeds import seed_for
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Down, Own
from fedparity.parts.personal.alone import Local
from fedparity.run.alone import Alone, Courses
from fedparity.run.lstar_rules import LstarRule

if TYPE_CHECKING:
    from fedparity.run.watching import Watcher

SPLITS = ("train", "validation", "test")
COLUMNS = ("client", *SPLITS, "rounds", "capped")
"""What a table of L* has: the losses (NaN without an example), the rounds that each client trained
alone, and whether it was still improving when these were over."""
ACCURACIES = ("validation_accuracy", "test_accuracy")
"""What the table has besides, where the task has accuracies and they were not given."""
FLOATS = 1 << 24
"""Parameters of the clients that train alone at the same time."""
ALONE = "each client alone (L*)"
"""How the stage of a run begins in which L* is found."""
Values = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Told the rounds done and how many clients go on training."""


class Cost(NamedTuple):
    """What training every client alone takes at most."""

    clients: int
    rounds: int
    """Of one client."""
    steps: tuple[int, int]
    """Of a round, of the client with the fewest and the one with the most."""
    examples: int
    """Read in a round of all clients."""
    groups: int
    """Clients that do not fit in memory at once train group after group."""

    @property
    def total(self) -> int:
        """Rounds of all groups."""
        return self.rounds * self.groups

    def __str__(self) -> str:
        few, many = self.steps
        steps = f"{few} to {many} steps" if few < many else f"{few} step{'s' * (few > 1)}"
        clients = f"{self.clients} client{'s' * (self.clients > 1)}"
        return f"{ALONE}, {clients}, {steps} a round"


def cost(setup: Setup, rule: LstarRule) -> Cost:
    """Return what L* by this rule takes at most, without computing any of it."""
    solver, sizes = setup.solver, setup.federation.train.sizes
    steps = solver.lengths(sizes)
    if solver.batch is not None and solver.epochs is not None:
        examples = solver.epochs * sizes
    else:
        examples = steps * (sizes if solver.batch is None else np.minimum(sizes, solver.batch))
    return Cost(
        len(sizes),
        rule.rounds,
        (int(steps.min()), int(steps.max())),
        int(examples.sum()),
        len(_groups(setup)),
    )


def telling(watch: Watcher, setup: Setup, rule: LstarRule) -> Progress:
    """Return the progress that is shown to a watcher, from the moment that training begins."""
    most = cost(setup, rule)

    def progress(done: int, left: int) -> None:
        if done == 0:
            watch.stage(str(most), most.total)
        watch.advance(done, f"{left} still improving" if left else "all have stopped")

    return progress


def estimate(
    setup: Setup, rule: LstarRule, engine: str, progress: Progress | None = None
) -> pd.DataFrame:
    """Train every client alone and return its losses by the rule."""
    return trained(setup, rule, engine, progress).table


def trained(setup: Setup, rule: LstarRule, engine: str, progress: Progress | None = None) -> Alone:
    """Train every client alone and return its losses by the rule, and what lies behind them."""
    alone = replace(
        setup,
        algorithm=Algorithm([Local()]),
        seed=seed_for(setup.seed, "alone"),
        lstar=None,
        local_buffers=True,
    )
    worker = choice.make(alone, engine)
    try:
        found = [
            _trained(worker, rule, clients, partial(_tell, progress, place * rule.rounds))
            for place, clients in enumerate(_groups(alone))
        ]
    finally:
        worker.close()
    return Alone.joined(found)


def _tell(progress: Progress | None, before: int, done: int, left: int) -> None:
    if progress is not None:
        progress(before + done, left)


def _groups(setup: Setup) -> list[Ids]:
    """Return the clients in groups whose parameters are held at once."""
    clients = np.arange(len(setup.federation))
    width = max(1, FLOATS // setup.layout.size)
    return np.array_split(clients, -(-len(clients) // width))


def _trained(engine: Engine, rule: LstarRule, clients: Ids, tell: Progress) -> Alone:
    """Train a group of clients, each until the rule stops it, and return their rows."""
    setup = engine.setup
    x, buffers = setup.layout.read(setup.module)
    tell(0, len(clients))
    params, stats = x.repeat(len(clients), 1), buffers.repeat(len(clients), 1)
    kept, kept_stats = params.clone(), stats.clone()
    best = _watched(engine, rule.watched, clients, params, stats)
    courses = Courses(setup.federation.names)
    courses.add(0, clients, best)
    mark = best.copy()  # from where a fall is counted
    waited, rounds = np.zeros_like(clients), np.zeros_like(clients)
    left = np.arange(len(clients))  # who still trains; params and stats are theirs
    for done in range(1, rule.rounds + 1):
        down = Down("train", done, setup.solver.rate(done), x, buffers)
        up = engine.ask(down, clients[left], stats, {"local": {"own": params}})
        assert up.buffers is not None
        params, stats = up.states["local"]["own"], up.buffers
        loss = _watched(engine, rule.watched, clients[left], params, stats)
        courses.add(done, clients[left], loss)
        with np.errstate(invalid="ignore"):
            first = np.isfinite(loss) & ~np.isfinite(mark[left])
            fell = rule.fallen(loss, mark[left]) | first
            keep = (rule.kept(loss, best[left]) & np.isfinite(loss)) | first
        mark[left] = np.where(fell, loss, mark[left])
        best[left] = np.where(keep, loss, best[left])
        kept[torch.from_numpy(left[keep])] = params[torch.from_numpy(keep)]
        kept_stats[torch.from_numpy(left[keep])] = stats[torch.from_numpy(keep)]
        waited[left] = np.where(fell, 0, waited[left] + 1)
        rounds[left] = done
        on = waited[left] < rule.patience
        if not on.all():
            left, params, stats = (
                left[on],
                params[torch.from_numpy(on)],
                stats[torch.from_numpy(on)],
            )
        tell(done, len(left))
        if not len(left):
            break
    capped = np.zeros(len(clients), dtype=np.bool_)
    capped[left] = True
    alone = Own(kept, kept_stats)
    found = {s: engine.evaluate_own(s, clients, alone) for s in SPLITS}
    missing = np.full(len(clients), np.nan)
    names = np.asarray(setup.federation.names, dtype=object)[clients]
    losses = {split: values.get("loss", missing) for split, values in found.items()}
    accuracies = {
        f"{split}_accuracy": found[split].get("accuracy", missing)
        for split in SPLITS[1:]
        if "accuracy" in found["train"]
    }
    ended = {"rounds": rounds, "capped": capped}
    table = pd.DataFrame({"client": names, **losses, **ended, **accuracies})
    return Alone(table, courses.table(), kept, kept_stats)


def _watched(engine: Engine, split: str, clients: Ids, params: Tensor, buffers: Tensor) -> Values:
    """Return the loss that decides; the training loss where a client has no such example."""
    loss = engine.evaluate_own(split, clients, Own(params, buffers)).get("loss")
    if loss is None:
        loss = np.full(len(clients), np.nan)
    absent = np.isnan(loss) & (getattr(engine.setup.federation, split).sizes[clients] == 0)
    if absent.any():
        rows = torch.from_numpy(np.flatnonzero(absent))
        own = engine.evaluate_own("train", clients[absent], Own(params[rows], buffers[rows]))
        loss = loss.copy()
        loss[absent] = own["loss"]
    return loss


def deciding(table: pd.DataFrame) -> Values:
    """Return L* on validation, or on training where a client has no validation example."""
    validation = table["validation"].to_numpy(dtype=np.float64)
    return np.where(np.isnan(validation), table["train"].to_numpy(dtype=np.float64), validation)
