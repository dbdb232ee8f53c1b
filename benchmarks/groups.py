"""How groups fare under the methods that go by them: people of 51 states, by sex and race.

    python benchmarks/groups.py [--seeds 3] [--rounds 50] [--share 0.05] [--only TEXT]

Prints the table of ``docs/results.md``. Needs the census's table of incomes in ``FEDPARITY_DATA``.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

import fedparity as fp

METHODS = {
    "fedavg": "fedavg",
    "fairfed(sex, beta=0.1)": "fairfed(group=sex, beta=0.1)",
    "fedfb(sex, alpha=0.1)": "fedfb(group=sex, alpha=0.1)",
    "fedfb(sex)": "fedfb(group=sex)",
    "fedfb(sex, alpha=2)": "fedfb(group=sex, alpha=2)",
    "fedminmax(sex)": "fedminmax(group=sex)",
    "fedminmax(sex, eta=1)": "fedminmax(group=sex, eta=1)",
    "fedminmax(race)": "fedminmax(group=race)",
    "fedminmax(race, eta=1)": "fedminmax(group=race, eta=1)",
}
MEANING = {
    "accuracy": "accuracy, %",
    "told yes": "women told yes less often, points",
    "told yes of yes": "the same among those who earn it, points",
    "loss sex": "loss of the worse served sex",
    "loss race": "loss of the worst served race",
}


def numbers(result: fp.Result) -> dict[str, float]:
    """Return what the table has of a run, on all test examples together."""
    said = result.predictions
    said = said[said["split"] == "test"]
    yes, earns = said["output_1"] > 0.5, said["target"] == 1

    def apart(rows: pd.Series) -> float:
        rate = yes[rows].groupby(said["group_sex"], observed=True).mean()
        return 100 * float(rate["male"] - rate["female"])

    losses = {
        kind: said.groupby(f"group_{kind}", observed=True)["loss"].mean()
        for kind in ("sex", "race")
    }
    return {
        "accuracy": 100 * float((yes == earns).mean()),
        "told yes": apart(earns | True),
        "told yes of yes": apart(earns),
        "loss sex": float(losses["sex"].max()),
        "loss race": float(losses["race"].max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    asked = parser.parse_args()
    people = fp.datasets.acs_income(share=asked.share)
    methods = {label: text for label, text in METHODS.items() if asked.only in label}
    found: dict[str, list[dict[str, float]]] = {label: [] for label in methods}
    for seed in range(asked.seeds):
        clients = people.split("natural", seed=seed)
        for label, algorithm in methods.items():
            made = fp.Experiment(
                clients,
                "linear",
                algorithm,
                rounds=asked.rounds,
                solver=fp.Solver(lr=0.1, steps=10, batch=64),
                weighting="size",
                lstar="none",
                seed=seed,
                evaluate_every=asked.rounds,
            )
            found[label].append(numbers(made.run()))
    print(f"{people} {clients}")
    print("| algorithm | " + " | ".join(MEANING.values()) + " |")
    print("|---" * (len(MEANING) + 1) + "|")
    for label, runs in found.items():
        cells = []
        for name in MEANING:
            values = np.array([run[name] for run in runs])
            digits = 3 if name.startswith("loss") else 1
            cells.append(f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}")
        print(f"| `{label}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
