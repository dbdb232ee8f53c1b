"""Clients never seen in training: who they are, and how the final model does on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor

from fedparity.data import Federation
from fedparity.engines import choice
from fedparity.engines.evaluation import OUTPUT, Values, by_client, of_clients
from fedparity.engines.inputs import fitted
from fedparity.errors import InputError, unknown
from fedparity.learning.seeds import seeds_of
from fedparity.records.clients import clients_table
from fedparity.run.conditions import Conditions

if TYPE_CHECKING:
    from fedparity.run.experiment import Experiment

Unseen = int | float | list[str] | None
"""A number of clients, a share of them, or their names."""
KEPT_ON_CLIENTS = frozenset({"own_layers", "own_model"})
"""Traits of parts whose model is not whole without what stays on a client."""


def dealt(names: Sequence[str], asked: Unseen, seed: int) -> tuple[str, ...]:
    """Return the clients that never train, in the order of all.

    They are drawn by seed and name: each name has a draw of its own, and the lowest are left out,
    so that neither the order of the clients nor a larger share changes who is left out first.

    >>> dealt(("a", "b", "c", "d"), 0.5, seed=0)
    ('c', 'd')
    >>> dealt(("d", "c", "b", "a"), 1, seed=0)
    ('c',)
    """
    if asked is None:
        return ()
    if isinstance(asked, list):
        for name in set(asked).difference(names):
            raise unknown("client", name, names)
        chosen = set(asked)
    else:
        number = max(1, round(asked * len(names))) if 0 < asked < 1 else int(asked)
        if number != asked and asked > 1:
            raise InputError(f"unseen is {asked:g}: a share below 1, a whole number, or names")
        draws = seeds_of(seed, "unseen", names)
        if number < 1:
            raise InputError(f"unseen is {asked:g}: leave it out if every client trains")
        chosen = {names[k] for k in np.argsort(draws, kind="stable")[:number]}
    if len(chosen) >= len(names):
        raise InputError(f"unseen leaves out all {len(names)} clients: nobody is left to train on")
    return tuple(name for name in names if name in chosen)


def refuse_on_flower(conditions: Conditions) -> None:
    """Refuse unseen clients where the clients are sites."""
    if conditions.unseen is not None:
        raise InputError(
            "unseen clients are not evaluated on Flower: leave unseen out, and their sites too"
        )


def apart(federation: Federation, conditions: Conditions) -> Federation:
    """Return the clients that train; they remember the whole federation that they are part of."""
    whole = federation.whole or federation
    assert isinstance(whole, Federation)
    if conditions.engine == "flower":
        refuse_on_flower(conditions)
    names = dealt(whole.names, conditions.unseen, conditions.seed)
    if not names:
        return whole
    seen = whole.only(*(name for name in whole.names if name not in names))
    return replace(seen, recipe=whole.recipe, whole=whole)


def check_unseen(experiment: Experiment) -> None:
    """Refuse what cannot be evaluated on clients that never train."""
    if experiment.conditions.unseen is None:
        return
    setup = experiment.setup
    kept = [part.name for part in setup.algorithm.parts if part.traits & KEPT_ON_CLIENTS]
    if kept or (setup.local_buffers and setup.layout.buffers):
        raise InputError(
            f"{kept[0] if kept else 'buffers'!r} keeps parameters or statistics on the clients "
            "that train, and unseen clients have none: leave unseen out"
        )


def unseen_table(experiment: Experiment, x: Tensor, buffers: Tensor) -> pd.DataFrame | None:
    """Return one row a client that never trained, at the shared model; None if all train."""
    federation = experiment.federation
    if federation.whole is None:
        return None
    seen, setup = set(federation.names), experiment.setup
    others = federation.whole.only(*(n for n in federation.whole.names if n not in seen))
    assert isinstance(others, Federation)
    others = fitted(others, setup.module, x.dtype)
    engine = choice.make(replace(setup, federation=others), "loop", None)
    values: dict[str, Values] = {}
    try:
        for split in ("train", "validation", "test"):
            data = getattr(others, split)
            if len(data):
                found = engine.evaluate_each(x, buffers, data, bool(setup.metrics))
                output = found.pop(OUTPUT, None)
                values[split] = by_client(found, data)
                if output is not None:
                    values[split] |= of_clients(setup.metrics, output, data)
    finally:
        engine.close()
    table = clients_table(others, values, None)
    return table[[name for name in table if not str(name).endswith(("_lstar", "_gap"))]]
