"""EAGLE: the trade-off of lambda (its Table 1)."""

from __future__ import annotations

from study import Setting, Study

import fedparity as fp


def femnist_pooled(seed: int, setting: Setting) -> fp.Federation:
    data = fp.datasets.femnist(normalise=True)
    return data.split(fp.Dirichlet(alpha=0.1), clients=10, seed=seed)


def gap_columns(result: fp.Result) -> dict[str, float]:
    summary = result.summary()
    return {
        "mean accuracy": summary["mean_accuracy"],
        "worst accuracy": summary["worst_accuracy"],
        "mean loss": summary["mean_loss"],
        "gap variance": summary["gap_variance"],
        "max gap": summary["max_gap"],
        "min gap": summary["min_gap"],
    }


GENTLE = fp.Solver(lr=0.01, steps=1)
EAGLE = Study(
    "EAGLE, Table 1: FEMNIST images pooled, Dirichlet 0.1 over 10 clients, linear model",
    200,
    femnist_pooled,
    "linear",
    [
        Setting("FedAvg", "uniform", GENTLE),
        Setting("q-FFL(1)", "qffl(q=1)", GENTLE),
        *(Setting(f"EAGLE({lam:g})", f"eagle(lam={lam})", GENTLE) for lam in (0.1, 1.0, 2.0, 5.0)),
    ],
    gap_columns,
)
