"""L* on disk, so that no two runs train the same clients alone."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path

import pandas as pd
import torch
from pyarrow.lib import ArrowException

from fedparity.engines.engine import Setup
from fedparity.engines.evaluation import evaluate_each
from fedparity.run.alone import Alone
from fedparity.run.lstar import COLUMNS, Progress, trained
from fedparity.run.lstar_rules import LstarRule

VERSION = 3
"""Of what is kept on disk of a client alone."""


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
    losses = evaluate_each(setup.task, setup.module, data.x[:64], data.y[:64])["loss"]
    for tensor in (x, buffers, losses):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:32]
