"""EAGLE with ten local steps: does it hold where the paper's weights diverge?"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from study import Setting, Study, accuracies, run

import fedparity as fp

SEEDS = (0, 1, 2, 3, 4)
ALPHAS = (0.3, 0.5)
ROUNDS = (30, 100)
"""Where the runs are looked at: while the model learns, and when it has learnt."""
SOLVERS = {
    "SGD 0.1": fp.Solver(lr=0.1, steps=10, batch=20),
    "Adam 0.003": fp.Solver(lr=0.003, steps=10, batch=20, optimizer="adam"),
}
BASELINE = "FedAvg"
METHODS = {
    BASELINE: "fedavg",
    "EAGLE(0.5)": "eagle(lam=0.5)",
    "EAGLE(2)": "eagle(lam=2)",
    "EAGLE(2), v_min=None": "eagle(lam=2, v_min=None)",
}


def study(alpha: float) -> Study:
    def digits(seed: int, setting: Setting) -> fp.Federation:
        return fp.datasets.digits().split(fp.Dirichlet(alpha=alpha), clients=10, seed=seed)

    return Study(
        f"digits, Dirichlet {alpha:g}",
        max(ROUNDS),
        digits,
        "mlp(hidden=50)",
        (),
        lambda _: {},
        {"weighting": "uniform", "evaluate_every": 10},
    )


def gap_variance(result: fp.Result, split: str, round: int) -> float:
    """Return the sample variance of the loss gaps at a round."""
    at = result.history.query("split == @split and round == @round and model == 'global'")
    loss = at[at["metric"] == "loss"].set_index("client")["value"]
    lstar = result.clients.set_index("client")[f"{split}_lstar"]
    return float((loss - lstar).var(ddof=1))


def measured(
    alpha: float, solver: str, method: str, seed: int, out: Path
) -> list[dict[str, float]]:
    """Return what one run comes to at each of the rounds, from disk if it was made before."""
    made = study(alpha)
    folder = out / f"{alpha:g}-{solver}-{list(METHODS).index(method)}-{seed}".replace(" ", "-")
    setting = Setting(method, METHODS[method], SOLVERS[solver])
    result = run(made, setting, seed, made.rounds, folder)
    if result is None:
        return []
    told = result.settings["record"].get("told", {}).get("eagle", {})
    return [
        {
            "round": round,
            "accuracy": accuracies(result).loc[round].mean(),
            "validation": gap_variance(result, "validation", round),
            "test": gap_variance(result, "test", round),
            "capped": 100 * told.get("capped_share", 0.0),
            "negative": 100 * told.get("negative_share", 0.0),
        }
        for round in ROUNDS
    ]


def told(name: str, rows: pd.DataFrame, base: pd.DataFrame) -> list[str]:
    """Return the cells of a method at a round, in five seeds, against FedAvg's."""
    cells = [f"{rows['accuracy'].mean():.2f} ± {rows['accuracy'].std():.2f}"]
    for split in ("validation", "test"):
        cells.append(f"{rows[split].median():.3f}")
        below = int((rows[split].to_numpy() < base[split].to_numpy()).sum())
        cells.append("" if name == BASELINE else f"{below} of {len(rows)}")
    return cells


def main(out: Path) -> None:
    """Run what is missing and print a row a method, condition and round."""
    found = {
        (alpha, solver, method): pd.DataFrame(
            [row for seed in SEEDS for row in measured(alpha, solver, method, seed, out)]
        )
        for alpha in ALPHAS
        for solver in SOLVERS
        for method in METHODS
    }
    for round in ROUNDS:
        print(f"\nAfter {round} rounds\n")
        print(
            "| | | mean accuracy | gap variance, validation (median) | below FedAvg's | "
            "test (median) | below FedAvg's |"
        )
        print("|---" * 7 + "|")
        for (alpha, solver, method), rows in found.items():
            base = found[alpha, solver, BASELINE]
            cells = told(method, rows[rows["round"] == round], base[base["round"] == round])
            print(f"| Dirichlet {alpha:g}, {solver} | {method} | " + " | ".join(cells) + " |")
    print("\nShare of rounds in which lambda was lowered, and of negative weights, %:\n")
    for (alpha, solver, method), rows in found.items():
        if method != BASELINE:
            shares = ", ".join(f"{rows[c].mean():.0f}" for c in ("capped", "negative"))
            print(f"- Dirichlet {alpha:g}, {solver}, {method}: {shares}")
