"""All methods under the same conditions, each at its defaults: what each makes of the clients.

A method that keeps personal models is told by these, as its clients would use them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from study import Setting, Study, run, table

import fedparity as fp
from fedparity.catalogue.methods import named_algorithms
from fedparity.catalogue.traffic import traffic
from fedparity.recipes import algorithm

LEFT_OUT = frozenset({"local", "fedsgd", "qfedsgd"})
"""What is no method for many steps: training alone stands in the columns of gaps."""


def digits(seed: int, setting: Setting) -> fp.Federation:
    return fp.datasets.digits().split(
        fp.Shards(per_client=2), clients=10, fractions=(0.6, 0.2, 0.2), seed=seed
    )


def clothes(seed: int, setting: Setting) -> fp.Federation:
    return fp.datasets.fashion_mnist().split(fp.Shards(per_client=2), clients=100, seed=seed)


@dataclass(frozen=True)
class Conditions:
    """Where the methods are compared."""

    study: Study
    solver: fp.Solver


ALL = {
    "everyone-digits": Conditions(
        Study(
            "All methods: digits by shards, 10 clients, all in every round",
            100,
            digits,
            "mlp(hidden=50)",
            (),
            lambda result: columns(result),
            {"evaluate_every": 20, "weighting": "uniform"},
            (0, 1, 2, 3, 4),
        ),
        fp.Solver(lr=0.1, steps=10, batch=20),
    ),
    "everyone-clothes": Conditions(
        Study(
            "All methods: Fashion-MNIST, 100 clients of two shards, 10 a round",
            500,
            clothes,
            "mlp",
            (),
            lambda result: columns(result),
            {"evaluate_every": 50, "weighting": "uniform", "cohort": 10},
            (0, 1, 2),
        ),
        fp.Solver(lr=0.1, steps=10, batch=50),
    ),
}


def columns(result: fp.Result) -> dict[str, float]:
    """Return the numbers of a run: of personal models where there are any, at the last round."""
    rows = result.history.query("split == 'test'")
    model = "personal" if "personal" in set(rows["model"]) else "global"
    last = rows[(rows["model"] == model) & (rows["round"] == rows["round"].max())]
    wide = last.pivot(index="client", columns="metric", values="value")
    accuracy = 100 * wide["accuracy"].dropna().sort_values()
    tail = max(1, int(0.05 * len(accuracy) + 1e-9))
    gaps = wide["loss"] - result.clients.set_index("client")["test_lstar"]
    return {
        "mean %": accuracy.mean(),
        "variance": accuracy.var(ddof=0),
        "worst 5 %": accuracy.iloc[:tail].mean(),
        "best 5 %": accuracy.iloc[-tail:].mean(),
        "gap variance": gaps.var(ddof=1),
        "below L* %": 100 * (gaps.dropna() < 0).mean(),
    }


def main(name: str, out: Path, seeds: int | None, only: str) -> None:
    """Run what is missing and print a row a method."""
    made = ALL[name]
    rows: dict[str, list[dict[str, float]]] = {}
    refused: list[str] = []
    for text in named_algorithms():
        if text in LEFT_OUT or only not in text:
            continue
        for seed in made.study.seeds[:seeds]:
            folder = out / name / f"{text}-{seed}"
            began = time.perf_counter()
            setting = Setting(text, text, made.solver)
            try:
                result = run(made.study, setting, seed, made.study.rounds, folder)
            except fp.InputError as error:
                refused.append(f"{text}: {error}")
                break
            rows.setdefault(text, [])
            if result is not None:
                sent = traffic(algorithm(text))
                models = 2 + sent.extra_up.models + sent.extra_down.models
                cost = {"models sent": models, "exchanges": len(sent.exchanges)}
                found = made.study.columns(result)
                rows[text].append({**found, **cost, "seconds": seconds(result)})
            print(f"{text}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    print(f"\n{made.study.title}; {made.study.rounds} rounds, {made.solver}\n")
    print(table(rows))
    for line in refused:
        print(f"- not run here: {line}")


def seconds(result: fp.Result) -> float:
    """Return the seconds of a run's rounds, without evaluation and L*."""
    assert result.path is not None
    log = pd.read_json(result.path / "log.jsonl", lines=True)
    return float(log.loc[log["round"] > 0, "seconds"].sum())
