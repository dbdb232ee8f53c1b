"""FedPGVC: capping the last layers' gradients, against FedAvg with and without clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from study import Setting, Study

import fedparity as fp

RATES = (0.05, 0.1, 0.2, 0.3)
DIGITS_RATES = (0.2, 0.5, 1.0, 2.0)
IMAGES = 12_000
LAST = 5
"""Rounds at the end of a run over which accuracies are averaged."""


def dirichlet_ten(seed: int, setting: Setting) -> fp.Federation:
    """Return the first training images, a tenth of them for validation, and all test images."""
    data = fp.datasets.fashion_mnist()
    assert data.held_out is not None
    rows = np.r_[np.flatnonzero(~data.held_out)[:IMAGES], np.flatnonzero(data.held_out)]
    few = replace(data, x=data.x[rows], y=data.y[rows], held_out=data.held_out[rows], recipe=None)
    return few.split(
        fp.Dirichlet(alpha=0.1), clients=10, seed=seed, fractions=(0.9, 0.1, 0.0), official=True
    )


def digits_ten(seed: int, setting: Setting) -> fp.Federation:
    return fp.datasets.digits().split(fp.Dirichlet(alpha=0.1), clients=10, seed=seed)


def pooled(result: fp.Result, split: str) -> float:
    """Return the accuracy over all examples of a split, a mean over the last rounds."""
    rows = result.history.query(f"split == '{split}' and metric == 'accuracy'")
    right = (rows["value"] * rows["n"]).groupby(rows["round"]).sum()
    each = 100 * right / rows.groupby("round")["n"].sum()
    return float(each.iloc[-LAST:].mean())


def columns(result: fp.Result) -> dict[str, float]:
    return {split: pooled(result, split) for split in ("validation", "test")}


def rows(rates: Sequence[float]) -> list[Setting]:
    """Return every method at every rate: a method's rate is the one that validates best."""
    found = []
    for lr in rates:
        plain = fp.Solver(lr=lr, epochs=2, batch=32)
        found += [
            Setting(f"FedAvg, {lr}", "uniform", plain),
            Setting(f"FedAvg, clip 1, {lr}", "uniform", replace(plain, clip=1.0)),
            Setting(f"FedPGVC norm, {lr}", "fedpgvc", plain),
            Setting(f"FedPGVC scalar, {lr}", "fedpgvc(mode=scalar)", plain),
        ]
    return found


CONDITIONS = {"evaluate_every": 1, "lstar": "none"}
PGVC = Study(
    "FedPGVC: 12,000 images of Fashion-MNIST, MLP, 10 clients, Dirichlet 0.1",
    20,
    dirichlet_ten,
    "mlp",
    rows(RATES),
    columns,
    CONDITIONS,
)
PGVC_DIGITS = Study(
    "FedPGVC: digits, MLP of 32, 10 clients, Dirichlet 0.1",
    50,
    digits_ten,
    "mlp(hidden=32)",
    rows(DIGITS_RATES),
    columns,
    CONDITIONS,
)
