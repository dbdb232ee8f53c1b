"""FedEBA+: variance of accuracy on shards (its Table 1), as its authors very probably ran it."""

from __future__ import annotations

from study import Setting, Study, accuracies

import fedparity as fp

LAST = 20
"""Evaluations at the end of a run that count: a single round depends on whom it drew."""


def shards(seed: int, setting: Setting) -> fp.Federation:
    """Return 100 clients with two shards of the training images and the test images of these."""
    data = fp.datasets.fashion_mnist()
    return data.split(
        fp.Shards(per_client=2), clients=100, seed=seed, fractions=(1.0, 0.0, 0.0), official=True
    )


def fairness_columns(result: fp.Result) -> dict[str, float]:
    """Return means over the last evaluations, and beside them the best round, called so."""
    rounds = accuracies(result)
    last = rounds.iloc[-LAST:]
    worst = last.apply(lambda row: row.nsmallest(5).mean(), axis=1)
    best = rounds.loc[rounds.mean(axis=1).idxmax()]
    return {
        "mean": last.mean(axis=1).mean(),
        "variance": last.var(axis=1, ddof=0).mean(),
        "worst 5 %": worst.mean(),
        "best round: mean": best.mean(),
        "best round: variance": best.var(ddof=0),
    }


SOLVER = fp.Solver(lr=0.1, epochs=1, batch=50, decay=0.999)
FEDEBA = Study(
    "FedEBA+, Table 1: Fashion-MNIST, 100 clients of 2 shards, 10 a round",
    2000,
    shards,
    "mlp(hidden=100)",
    [
        Setting("FedAvg", "fedavg", SOLVER),
        Setting(
            "FedEBA+(0.2, 0.1), floor 0.1", "fedeba_plus(alpha=0.2, floor=0.1, clip=None)", SOLVER
        ),
        Setting("default: weights, floor 0.5", "fedeba_plus", SOLVER),
        Setting(
            "FedEBA+(0.9, 0.1), floor 0.1, clip 1",
            "fedeba_plus(alpha=0.9, floor=0.1, clip=1)",
            SOLVER,
        ),
        Setting("FedEBA+(0.9, 0.1) as printed", "fedeba_plus_paper", SOLVER),
    ],
    fairness_columns,
    {"cohort": 10, "lstar": "none", "evaluate_every": 10},
)
