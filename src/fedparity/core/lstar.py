"""L*: the best loss a client reaches alone, the zero of every loss gap.

Each client trains the same architecture alone, from the shared start, with the experiment's solver.
That is the part ``local``; this module watches it, client by client, so that a client's number does
not depend on who else is there.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as settings
from torch import Tensor

from fedparity.core.algorithm import Algorithm
from fedparity.core.client import Down
from fedparity.core.seeds import seed_for
from fedparity.core.state import ClientStore
from fedparity.engines import auto
from fedparity.engines.evaluation import measure
from fedparity.engines.setup import Engine, Ids, Setup
from fedparity.parts.local import Local
from fedparity.spec import construct, parse_one

SPLITS = ("train", "validation", "test")
Values = npt.NDArray[np.float64]


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class BestValidation:
    """The loss of the model with the least validation loss along the way (the default).

    Parameters
    ----------
    rounds
        Rounds of training alone; None gives every client the budget it has in the experiment.
    patience
        A client stops when its validation loss has not fallen for this many rounds.
    tolerance
        By how much it must fall to count.
    """

    rounds: int | None = Field(default=None, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=0.0, ge=0)

    def watched(self) -> str:
        """Return the split whose loss decides."""
        return "validation"


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class TrainPlateau:
    """The loss of the model at which the training loss has gone flat (the EAGLE paper's rule).

    It overfits, and so inflates L* on small clients: offered for reproduction.

    Parameters
    ----------
    rounds
        At most this many rounds; None as above.
    patience, tolerance
        Flat means that the training loss fell by less than ``tolerance`` for ``patience`` rounds.
    """

    rounds: int | None = Field(default=None, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=1e-4, ge=0)

    def watched(self) -> str:
        """Return the split whose loss decides."""
        return "train"


RULES: dict[str, Callable[..., BestValidation | TrainPlateau]] = {
    "best_validation": BestValidation,
    "train_plateau": TrainPlateau,
}
LstarRule = BestValidation | TrainPlateau
Progress = Callable[[int, int], None]


def rule(text: str) -> LstarRule:
    """Read a rule such as ``best_validation(patience=50)``."""
    return construct("rule for L*", parse_one(text), RULES)


def cache_dir() -> Path:
    """Return where L* is kept between runs: ``$FEDPARITY_CACHE``, else ``~/.cache/fedparity``."""
    return Path(os.environ.get("FEDPARITY_CACHE") or Path.home() / ".cache" / "fedparity")


def cached(
    setup: Setup,
    rule: LstarRule,
    rounds: int,
    engine: str,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Return L* of every client, from disk if it was computed before.

    One row a client; columns ``train``, ``validation``, ``test`` (NaN without an example).
    ``folder`` is where it is kept, by default :func:`cache_dir`.
    """
    file = (folder or cache_dir()) / "lstar" / f"{_key(setup, rule, rounds, engine)}.parquet"
    if file.exists():
        try:
            table = pd.read_parquet(file)
        except (OSError, ValueError):
            table = pd.DataFrame()
        if list(table.columns) == list(SPLITS) and len(table) == len(setup.federation):
            return table
    table = estimate(setup, rule, rounds, engine, progress)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(f".{os.getpid()}")
        table.to_parquet(beside)
        beside.replace(file)
    except OSError as error:
        warnings.warn(f"L* is not kept for other runs: {error}", stacklevel=2)
    return table


def budget(rounds: int, cohort: int, population: int) -> int:
    """Return the rounds alone that a client's share of the experiment's training amounts to."""
    return max(1, math.ceil(rounds * (cohort / population)))


def estimate(
    setup: Setup, rule: LstarRule, rounds: int, engine: str, progress: Progress | None = None
) -> pd.DataFrame:
    """Train every client alone and return its losses by the rule."""
    alone = replace(
        setup,
        algorithm=Algorithm([Local()]),
        seed=seed_for(setup.seed, "alone"),
        lstar=None,
        local_buffers=True,
    )
    worker = auto.make(alone, engine)
    try:
        x, buffers = alone.layout.read(alone.module)
        return _estimate(alone, worker, x, buffers, rule, rule.rounds or rounds, progress)
    finally:
        worker.close()


def _estimate(
    setup: Setup,
    engine: Engine,
    x: Tensor,
    buffers: Tensor,
    rule: LstarRule,
    rounds: int,
    progress: Progress | None,
) -> pd.DataFrame:
    federation = setup.federation
    everyone = np.arange(len(federation))
    store = ClientStore(
        setup.algorithm, setup.layout, x, buffers, len(federation), local_buffers=True
    )
    store.scatter(everyone, store.gather(everyone))
    kept, kept_buffers = x.repeat(len(everyone), 1), buffers.repeat(len(everyone), 1)
    lowest = np.full(len(everyone), np.inf)
    waited = np.zeros(len(everyone), dtype=np.int64)
    training = everyone
    for done in range(rounds + 1):
        if done:
            down = Down("train", done, setup.solver.rate(done), x, buffers)
            states = store.gather(training)
            own = states["buffers"]["b"] if "buffers" in states else buffers
            up = engine.ask(down, training, own, states)
            if "buffers" in states and up.buffers is not None:
                up.states["buffers"] = {"b": up.buffers}
            store.scatter(training, up.states)
        states = store.gather(training)
        params = states["local"]["own"]
        stats = states["buffers"]["b"] if "buffers" in states else params.new_zeros(len(params), 0)
        loss = _watched(engine, rule.watched(), training, params, stats)
        better = loss < lowest[training] - rule.tolerance
        waited[training] = np.where(better, 0, waited[training] + 1)
        lowest[training] = np.where(better, loss, lowest[training])
        keep = better | (rule.watched() == "train")
        rows = torch.from_numpy(training[keep])
        kept[rows], kept_buffers[rows] = params[keep], stats[keep]
        training = training[waited[training] < rule.patience]
        if progress is not None:
            progress(done, rounds)
        if not len(training):
            break
    found = {s: engine.evaluate_own(s, everyone, kept, kept_buffers) for s in SPLITS}
    missing = np.full(len(everyone), np.nan)
    return pd.DataFrame({split: found[split].get("loss", missing) for split in SPLITS})


def _watched(engine: Engine, split: str, clients: Ids, params: Tensor, buffers: Tensor) -> Values:
    """Return the loss that decides; the training loss where a client has no such example."""
    loss = engine.evaluate_own(split, clients, params, buffers).get("loss")
    if loss is None:
        loss = np.full(len(clients), np.nan)
    absent = np.isnan(loss) & (getattr(engine.setup.federation, split).sizes[clients] == 0)
    if absent.any():
        rows = torch.from_numpy(np.flatnonzero(absent))
        own = engine.evaluate_own("train", clients[absent], params[rows], buffers[rows])
        loss = loss.copy()
        loss[absent] = own["loss"]
    return loss


def deciding(table: pd.DataFrame) -> Values:
    """Return L* on validation, or on training where a client has no validation example."""
    validation = table["validation"].to_numpy(dtype=np.float64)
    return np.where(np.isnan(validation), table["train"].to_numpy(dtype=np.float64), validation)


def _key(setup: Setup, rule: LstarRule, rounds: int, engine: str) -> str:
    x, buffers = setup.layout.read(setup.module)
    digest = hashlib.sha256()
    described = (
        setup.federation.fingerprint,
        setup.task.name,
        repr(setup.module),
        repr(setup.solver),
        repr(rule),
        rounds if rule.rounds is None else rule.rounds,
        setup.seed,
        engine,
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
