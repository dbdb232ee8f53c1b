"""L*: the best loss a client reaches alone, the zero of every loss gap.

Each client trains the same architecture alone, from the shared start, with the experiment's solver,
until its own loss says that it is done. That is the part ``local``; this module watches it, client
by client, so that a client's number depends neither on who else is there nor on how long, in which
cohorts or with which algorithm the federation trains.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pyarrow.lib import ArrowException
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as settings
from torch import Tensor

from fedparity.engines import choice
from fedparity.engines.engine import Engine, Ids, Setup
from fedparity.engines.evaluation import measure
from fedparity.learning.seeds import seed_for
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Down, Own
from fedparity.parts.personal.alone import Local
from fedparity.run.alone import Alone, Courses
from fedparity.spec import construct, parse_one

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
VERSION = 3
"""Of what is kept on disk of a client alone."""
Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class BestValidation:
    """The loss of the model with the least validation loss along the way (the default).

    Parameters
    ----------
    rounds
        At most this many rounds alone.
    patience
        A client stops when its validation loss has not fallen for this many rounds.
    tolerance
        By which share of itself it must fall to count.
    """

    rounds: int = Field(default=1000, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=1e-3, ge=0)

    watched = "validation"
    """The split whose loss decides."""

    def fallen(self, loss: Values, mark: Values) -> Flags:
        """Tell where a loss is below one before by enough to go on."""
        return mark - loss > self.tolerance * np.abs(mark)

    def kept(self, loss: Values, best: Values) -> Flags:
        """Tell whose model is kept: the best one seen."""
        return loss < best


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class TrainPlateau:
    """The loss of the model at which the training loss has gone flat (the EAGLE paper's rule).

    It overfits, and so inflates L* on small clients: offered for reproduction.

    Parameters
    ----------
    rounds
        At most this many rounds alone; the paper has at most so many epochs.
    patience
        A client stops when its training loss has been flat for this many rounds.
    tolerance
        Flat means that it fell by no more than this, in the unit of the loss: a training loss may
        go to zero, and a share of that would never be small.
    """

    rounds: int = Field(default=10_000, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=1e-4, ge=0)

    watched = "train"
    """The split whose loss decides."""

    def fallen(self, loss: Values, mark: Values) -> Flags:
        """Tell where a loss is below one before by enough to go on."""
        return mark - loss > self.tolerance

    def kept(self, loss: Values, best: Values) -> Flags:
        """Tell whose model is kept: the last one."""
        return np.ones(len(loss), dtype=np.bool_)


RULES: dict[str, Callable[..., BestValidation | TrainPlateau]] = {
    "best_validation": BestValidation,
    "train_plateau": TrainPlateau,
}
LstarRule = BestValidation | TrainPlateau
Progress = Callable[[int, int], None]
"""Told the rounds done and how many clients go on training."""


def rule(text: str) -> LstarRule:
    """Read a rule such as ``best_validation(patience=50)``."""
    return construct("rule for L*", parse_one(text), RULES)


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


def cache_dir() -> Path:
    """Return where L* is kept between runs: ``$FEDPARITY_CACHE``, else ``~/.cache/fedparity``."""
    return Path(os.environ.get("FEDPARITY_CACHE") or Path.home() / ".cache" / "fedparity")


def cached(
    setup: Setup,
    rule: LstarRule,
    engine: str,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Return L* of every client, as :func:`kept` does."""
    return kept(setup, rule, engine, progress, folder).table


def kept(
    setup: Setup,
    rule: LstarRule,
    engine: str,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> Alone:
    """Return L* of every client and what lies behind it, from disk if it was computed before.

    The table has one row a client and the columns :data:`COLUMNS`. ``folder`` is where it is kept,
    by default :func:`cache_dir`.
    """
    file = _file(setup, rule, engine, folder)
    table = read(file, setup)
    if table is not None:
        return Alone.beside(table, file)
    found = trained(setup, rule, engine, progress)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        found.keep(file)
    except OSError as error:
        warnings.warn(f"L* is not kept for other runs: {error}", stacklevel=2)
    return found


def recalled(
    setup: Setup, rule: LstarRule, engine: str, folder: Path | None = None
) -> Alone | None:
    """Return what training each client alone left, if it was done before and kept."""
    file = _file(setup, rule, engine, folder)
    table = read(file, setup)
    return None if table is None else Alone.beside(table, file)


def is_cached(setup: Setup, rule: LstarRule, engine: str) -> bool:
    """Tell whether L* was computed before, so that it costs nothing."""
    return read(_file(setup, rule, engine), setup) is not None


def read(file: Path, setup: Setup) -> pd.DataFrame | None:
    """Return the table of these clients in a file; None if there is none that can be read."""
    if not file.exists():
        return None
    try:
        table = pd.read_parquet(file)
    except (ArrowException, OSError, ValueError):
        return None
    if (
        tuple(table.columns)[: len(COLUMNS)] != COLUMNS
        or tuple(table["client"]) != setup.federation.names
    ):
        return None
    return table


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


def _file(setup: Setup, rule: LstarRule, engine: str, folder: Path | None = None) -> Path:
    return (folder or cache_dir()) / "lstar" / f"{_key(setup, rule, engine)}.parquet"


def _key(setup: Setup, rule: LstarRule, engine: str) -> str:
    x, buffers = setup.layout.read(setup.module)
    digest = hashlib.sha256()
    described = (
        VERSION,
        setup.federation.fingerprint,
        setup.task.text,
        repr(setup.module),
        repr(setup.solver),
        repr(rule),
        setup.seed,
        engine,
        *(() if setup.device == "cpu" else (setup.device,)),
        torch.__version__,
        *(() if setup.places is None else setup.places.tolist()),
    )
    digest.update(repr(described).encode())
    # What a module or a task does is not in its name: the first losses tell it.
    data = setup.federation.train
    losses = measure(setup.task, setup.module, data.x[:64], data.y[:64])["loss"]
    for tensor in (x, buffers, losses):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:32]
