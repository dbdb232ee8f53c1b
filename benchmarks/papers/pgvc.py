"""FedPGVC: which mode is stable."""

from __future__ import annotations

import numpy as np
from study import Setting, Study

import fedparity as fp


def dirichlet_ten(seed: int, setting: Setting) -> fp.Federation:
    data = fp.datasets.fashion_mnist()
    return data.split(
        fp.Dirichlet(alpha=0.5), clients=10, seed=seed, fractions=(1.0, 0.0, 0.0), official=True
    )


def pgvc_columns(result: fp.Result) -> dict[str, float]:
    rows = result.history.query("split == 'test' and metric == 'accuracy' and model == 'global'")
    weighted = (
        rows.assign(correct=rows["value"] * rows["n"]).groupby("round")[["correct", "n"]].sum()
    )
    pooled = 100 * weighted["correct"] / weighted["n"]
    reached = pooled[pooled >= 88]
    return {
        "last": pooled.iloc[-1],
        "best": pooled.max(),
        "rounds to 88 %": float(reached.index[0]) if len(reached) else np.nan,
    }


def _pgvc_rows() -> list[Setting]:
    solvers = {
        "SGD 0.05": fp.Solver(lr=0.05, epochs=1, batch=32),
        "SGD 0.01": fp.Solver(lr=0.01, epochs=1, batch=32),
        "Adam 0.001": fp.Solver(lr=0.001, epochs=1, batch=32, optimizer="adam"),
        "SGD 0.001": fp.Solver(lr=0.001, epochs=1, batch=32),
        "Adam 0.0001": fp.Solver(lr=0.0001, epochs=1, batch=32, optimizer="adam"),
    }
    modes = ("scalar", "literal", "abs", "second_moment", "penalty")
    rows = []
    for name, solver in solvers.items():
        rows.append(Setting(f"FedAvg, {name}", "uniform", solver))
        rows += [Setting(f"{m}, {name}", f"fedpgvc(mode={m})", solver) for m in modes]
    return rows


PGVC = Study(
    "FedPGVC: Fashion-MNIST, LeNet, 10 clients, Dirichlet 0.5",
    10,
    dirichlet_ten,
    "lenet",
    _pgvc_rows(),
    pgvc_columns,
    {"evaluate_every": 1, "lstar": "none"},
)
