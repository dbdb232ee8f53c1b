"""Methods combine by '+': five combinations on the same ten clients, against FedAvg.

    python examples/combinations.py [ROUNDS]

Each client holds two of the handwritten digits. The table shows what a combination makes of the
mean, the worst client, and the spread of accuracies.
"""

from __future__ import annotations

import sys
import warnings

import pandas as pd

import fedparity as fp

COMBINATIONS = (
    "fedavg",
    "fedeba_plus(alpha=0.5, tau=1)+lsr",
    "fedfv+momentum(beta=0.5)",
    "eagle(lam=0.5)+fedprox(mu=0.1)",
    "qffl(q=0.1)+fedvarp",
    "fednova+pgvc(layers=1)",
)


def compare(rounds: int) -> pd.DataFrame:
    """Return one row a combination, under the same conditions."""
    clients = fp.datasets.digits().split("shards", clients=10, fractions=(0.6, 0.2, 0.2))
    rows = {}
    for text in COMBINATIONS:
        experiment = fp.Experiment(
            clients,
            "mlp(hidden=32)",
            text,
            rounds=rounds,
            solver=fp.Solver(lr=0.1, steps=5, batch=20),
            cohort=5,
            weighting="uniform",  # as most of these average by nature
        )
        rows[text] = experiment.run().summary()
    shown = ["mean_accuracy", "worst_accuracy", "accuracy_std", "gap_variance"]
    return pd.DataFrame(rows).T[shown].round(2)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(compare(int(sys.argv[1]) if len(sys.argv) > 1 else 100).to_string())
