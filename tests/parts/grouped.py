"""Federations with groups inside clients, and FedAvg by size beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from logistic import Batch, Vector, probabilities
from scripted import after, bench

import fedparity as fp
from fedparity.data import Split
from fedparity.method import Grouping
from fedparity.method.context import Context

COUNTS = torch.tensor([[30, 20], [25, 0], [5, 20]])
"""Examples of the groups a and b in clients of 50, 25 and 25."""
GROUPS = {"group": Grouping(("a", "b"), COUNTS)}


def regrouped(
    federation: fp.Federation, names: tuple[str, ...], of: Callable[[Split], npt.NDArray[Any]]
) -> fp.Federation:
    """Return the federation with groups of the kind ``group`` that a function of a split tells."""

    def split(data: Split) -> Split:
        return replace(data, groups={"group": of(data).astype(np.int16)})

    splits = {name: split(getattr(federation, name)) for name in ("train", "validation", "test")}
    return replace(federation, groups={"group": names}, **splits)


def places(batch: Batch) -> npt.NDArray[np.int64]:
    """Return the groups of examples of ``unlike_clients``: 0 for a, 1 for b."""
    return (batch[0][:, 0] <= 0.5).astype(np.int64)


def weighted_gradient(v: Vector, batch: Batch, weights: Vector) -> Vector:
    """Return the gradient of the mean of examples' cross-entropies times their weights."""
    x, y = batch
    slope = (probabilities(v, x) - np.eye(3)[y]) * weights[:, None] / len(y)
    return np.concatenate([(slope.T @ x).reshape(-1), slope.sum(0)])


def losses(v: Vector, batch: Batch) -> Vector:
    """Return the cross-entropy of every example."""
    x, y = batch
    found: Vector = -np.log(probabilities(v, x)[np.arange(len(y)), y])
    return found


def is_fedavg_by_size(federation: fp.Federation, algorithm: str, engine: str) -> None:
    """Claim that an algorithm moves as FedAvg by size does, in mini-batches."""
    known = {"solver": fp.Solver(lr=0.1, steps=3, batch=4), "model": "mlp(hidden=4)"}
    found = after(bench(federation, algorithm, engine=engine, **known), 3)
    wanted = after(bench(federation, "fedavg", engine=engine, weighting="size", **known), 3)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def asked(script: Any) -> Context:
    """Return the view of a script's next round, of all its clients."""
    context: Context = replace(script.context, round=script.round + 1, x=script.server.x)
    return context
