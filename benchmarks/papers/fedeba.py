"""FedEBA+: variance of accuracy on shards (its Table 1)."""

from __future__ import annotations

from study import Setting, Study

import fedparity as fp


def shards(seed: int, setting: Setting) -> fp.Federation:
    return fp.datasets.fashion_mnist().split(fp.Shards(per_client=2), clients=100, seed=seed)


def fairness_columns(result: fp.Result) -> dict[str, float]:
    summary = result.summary()
    return {
        "mean": summary["mean_accuracy"],
        "variance": summary["accuracy_variance"],
        "worst 5 %": summary["worst5_accuracy"],
        "best 5 %": summary["best5_accuracy"],
    }


EBA_SOLVER = fp.Solver(lr=0.1, steps=10, batch=50, decay=0.999)
GENTLE_EBA = fp.Solver(lr=0.01, steps=10, batch=50, decay=0.999)
FEDEBA = Study(
    "FedEBA+, Table 1: Fashion-MNIST, 100 clients of 2 shards, 10 a round",
    500,
    shards,
    "mlp",
    [
        Setting("FedAvg", "fedavg", EBA_SOLVER),
        Setting("FedEBA(0.1)", "fedeba(tau=0.1)", EBA_SOLVER),
        Setting("Prac-FedEBA+(0.9, 0.1)", "prac_fedeba_plus(alpha=0.9, tau=0.1)", EBA_SOLVER),
        Setting("FedEBA+(0.9, 0.1)", "fedeba_plus(alpha=0.9, tau=0.1)", EBA_SOLVER),
        Setting("FedEBA+(0.1, 0.1)", "fedeba_plus(alpha=0.1, tau=0.1)", EBA_SOLVER),
        Setting("FedEBA+(0.9, 1)", "fedeba_plus(alpha=0.9, tau=1)", EBA_SOLVER),
        Setting("FedEBA+(0.1, 1)", "fedeba_plus(alpha=0.1, tau=1)", EBA_SOLVER),
        Setting("FedEBA+(0.9, 0.1), lr 0.01", "fedeba_plus(alpha=0.9, tau=0.1)", GENTLE_EBA),
    ],
    fairness_columns,
    {"cohort": 10, "lstar": "none"},
)
