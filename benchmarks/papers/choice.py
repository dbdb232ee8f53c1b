"""Which setting of FedEBA+ is the default: one written rule over four federations.

The rule: every method takes the learning rate of its best mean validation accuracy (seed 0). Among
the settings whose mean test accuracy, over seeds, is on no federation more than a point below
FedAvg's, the default is the one of the lowest variance of test accuracy over clients, as a share of
FedAvg's, on average over the federations. A setting that fails on one federation is not tried on
the next. Every number of a run is the mean over its last 20 evaluations, for a single round depends
on whom it drew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from study import Setting, Study, accuracies, run

import fedparity as fp

SEEDS = (0, 1, 2)
ALLOWED = 1.0
"""Points of mean accuracy below FedAvg's that a default may cost."""
LAST = 20
"""Evaluations at the end of a run that count."""


@dataclass(frozen=True)
class Ground:
    """A federation on which the settings are tried."""

    title: str
    federation: Callable[[int], fp.Federation]
    model: str
    rounds: int
    batch: int
    rates: tuple[float, ...]


def fashion(seed: int) -> fp.Federation:
    return fp.datasets.fashion_mnist().split(fp.Shards(per_client=2), clients=100, seed=seed)


def cifar(seed: int) -> fp.Federation:
    return fp.datasets.cifar10().split(fp.Shards(per_client=2), clients=100, seed=seed)


def writers(seed: int) -> fp.Federation:
    return fp.datasets.femnist().split("natural", seed=seed)


def digits(seed: int) -> fp.Federation:
    return fp.datasets.digits().split(fp.Dirichlet(alpha=0.3), clients=20, seed=seed)


GROUNDS = {
    "digits": Ground("digits, Dirichlet 0.3", digits, "mlp(hidden=50)", 200, 20, (0.03, 0.1, 0.3)),
    "femnist": Ground("FEMNIST by writer", writers, "mlp(hidden=100)", 300, 50, (0.01, 0.03, 0.1)),
    "fashion": Ground("Fashion-MNIST, 2 shards", fashion, "mlp(hidden=100)", 300, 50, (0.03, 0.1)),
    "cifar": Ground("CIFAR-10, 2 shards", cifar, "mlp(hidden=64)", 150, 50, (0.02, 0.05)),
}
BASELINE = "FedAvg"
SETTINGS = {
    BASELINE: "fedavg",
    "weights, floor 0.5": "fedeba(tau=0.1, floor=0.5)",
    "align 0.2": "fedeba_plus(alpha=0.2, tau=0.1, clip=None, aggregate=given)",
    "0.2, floor 0.1": "fedeba_plus(alpha=0.2, tau=0.1, floor=0.1, clip=None)",
    "0.2, floor 0.5, clip 0.3": "fedeba_plus(alpha=0.2, tau=0.1, floor=0.5, clip=0.3)",
    "0.5, floor 0.5, clip 0.3": "fedeba_plus(alpha=0.5, tau=0.1, floor=0.5, clip=0.3)",
    "0.5, floor 0.5, clip 1": "fedeba_plus(alpha=0.5, tau=0.1, floor=0.5, clip=1.0)",
    "0.9, floor 0.1, clip 1": "fedeba_plus(alpha=0.9, tau=0.1, floor=0.1, clip=1.0)",
    "align 0.2, clip 1": "fedeba_plus(alpha=0.2, tau=0.1, clip=1.0, aggregate=given)",
}
"""Alpha (tau is 0.1), floor and clip; ``weights`` has no alignment, ``align`` no weights."""


def measured(ground: Ground, name: str, text: str, rate: float, seed: int, out: Path) -> pd.Series:
    """Return what one run comes to, from disk if it was made before."""
    solver = fp.Solver(lr=rate, steps=10, batch=ground.batch)
    study = Study(
        ground.title,
        ground.rounds,
        lambda seed, _: ground.federation(seed),
        ground.model,
        (),
        lambda _: {},
        {"cohort": 10, "weighting": "uniform", "evaluate_every": 5, "lstar": "none"},
    )
    began = time.monotonic()
    place = list(SETTINGS).index(name)
    result = run(
        study, Setting(name, text, solver), seed, ground.rounds, out / f"{place}-{rate:g}-{seed}"
    )
    if result is None:
        return pd.Series(
            {"validation": 0.0, "mean": np.nan, "variance": np.nan, "worst 5 %": np.nan}
        )
    test = accuracies(result, "test").iloc[-LAST:]
    validation = accuracies(result, "validation").iloc[-LAST:]
    few = max(1, int(0.05 * test.count(axis=1).min()))
    took = time.monotonic() - began
    print(
        f"{ground.title}: {name}, {rate:g}, seed {seed}: {took:.0f} s", file=sys.stderr, flush=True
    )
    return pd.Series(
        {
            "validation": validation.mean(axis=1).mean(),
            "mean": test.mean(axis=1).mean(),
            "variance": test.var(axis=1, ddof=0).mean(),
            "worst 5 %": test.apply(lambda row: row.nsmallest(few).mean(), axis=1).mean(),
        }
    )


def tried(ground: Ground, names: list[str], out: Path) -> pd.DataFrame:
    """Return a row a setting and seed, each at its own learning rate."""
    rows = []
    for name in names:
        text = SETTINGS[name]
        first = {rate: measured(ground, name, text, rate, SEEDS[0], out) for rate in ground.rates}
        rate = max(first, key=lambda rate: first[rate]["validation"])
        for seed in SEEDS:
            found = measured(ground, name, text, rate, seed, out)
            rows.append({"setting": name, "lr": rate, "seed": seed, **found})
    return pd.DataFrame(rows)


def table(found: pd.DataFrame) -> str:
    """Return a markdown table: mean and sample standard deviation over seeds."""
    lines = ["| | lr | mean | variance | worst 5 % |", "|---|---|---|---|---|"]
    for name, rows in found.groupby("setting", sort=False):
        cells = [
            f"{rows[c].mean():.2f} ± {rows[c].std():.2f}" for c in ("mean", "variance", "worst 5 %")
        ]
        lines.append(f"| {name} | {rows['lr'].iloc[0]:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def against_fedavg(found: pd.DataFrame) -> pd.DataFrame:
    """Return a row a setting: points of mean accuracy gained, and the share of the variance."""
    means = found.groupby("setting", sort=False)[["mean", "variance"]].mean()
    return pd.DataFrame(
        {
            "gain": means["mean"] - means["mean"][BASELINE],
            "variance share": means["variance"] / means["variance"][BASELINE],
        }
    )


def main(out: Path) -> None:
    """Run what is missing and print the tables and the verdict."""
    left, shares = list(SETTINGS), []
    for key, ground in GROUNDS.items():
        found = tried(ground, left, out / key)
        print(f"\n{ground.title}\n\n{table(found)}", flush=True)
        told = against_fedavg(found)
        left = [name for name in left if told["gain"][name] >= -ALLOWED]
        shares.append(told["variance share"])
    share = pd.concat(shares, axis=1).loc[left].mean(axis=1).drop(BASELINE)
    print("\nShare of FedAvg's variance, of the settings that pass:\n")
    print(share.round(3).to_string())
    print(f"\nThe default: {share.idxmin()}" if len(share) else "\nNo setting passes.")
