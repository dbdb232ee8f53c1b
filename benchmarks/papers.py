"""The papers' claims on real data: run a study and print its table.

    python benchmarks/papers.py STUDY [--seeds N] [--rounds N] [--out runs/papers]

A run that is already in the output directory is read, one that was stopped goes on, so a study can
be interrupted and continued at any time. The tables of ``docs/results.md`` come from here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedparity as fp

SEEDS = (0, 42, 100, 200, 300)


@dataclass(frozen=True)
class Setting:
    """One row of a table: an algorithm under its conditions."""

    label: str
    algorithm: str
    solver: fp.Solver
    more: dict[str, Any] = field(default_factory=dict)
    data: str = ""


@dataclass(frozen=True)
class Study:
    """What is run, and which numbers of a run are shown."""

    title: str
    rounds: int
    federation: Callable[[int, Setting], fp.Federation]
    model: str
    settings: Sequence[Setting]
    columns: Callable[[fp.Result], dict[str, float]]
    conditions: dict[str, Any] = field(default_factory=dict)


def test_accuracies(result: fp.Result) -> pd.DataFrame:
    """Return test accuracy in percent, a row a round and a column a client."""
    rows = result.history.query("split == 'test' and metric == 'accuracy' and model == 'global'")
    return 100 * rows.pivot(index="round", columns="client", values="value")


# --- FedFV, Table 3 -----------------------------------------------------------------------------


def three_clothes(seed: int, setting: Setting) -> fp.Federation:
    data = fp.datasets.fashion_mnist(normalise=setting.data == "normalised")
    scheme = fp.ByClass(classes=(6, 2, 0))
    return data.split(scheme, seed=seed, fractions=(1.0, 0.0, 0.0), official=True)


def fedfv_columns(result: fp.Result) -> dict[str, float]:
    last20, last = test_accuracies(result).iloc[-20:], test_accuracies(result).iloc[-1]
    names = ("shirt", "pullover", "T-shirt")
    mean20 = last20.mean(axis=0)
    return {
        **dict(zip(names, last, strict=True)),
        "mean": last.mean(),
        "std": last.std(ddof=0),
        "mean (last 20)": mean20.mean(),
        "std (last 20)": float(last20.std(axis=1, ddof=0).mean()),
    }


FULL = fp.Solver(lr=0.1, steps=1)
B400 = fp.Solver(lr=0.1, epochs=1, batch=400)
FEDFV_ROWS = {
    "FedAvg": "uniform",
    "AFL(0.1)": "afl(eta=0.1)",
    "q-FFL(5)": "qffl(q=5)",
    "FedFV(0)": "fedfv(alpha=0, tau=0)",
    "FedFV(1/3)": "fedfv(alpha=1/3, tau=0)",
    "FedFV(2/3)": "fedfv(alpha=2/3, tau=0)",
}
FEDFV = Study(
    "FedFV, Table 3: Fashion-MNIST, clients shirt, pullover, T-shirt",
    200,
    three_clothes,
    "mlp",
    [Setting(label, text, FULL) for label, text in FEDFV_ROWS.items()],
    fedfv_columns,
    {"evaluate_every": 1, "lstar": "none"},
)
FEDFV_BATCHES = Study(
    "FedFV, Table 3 with batches of 400, one epoch a round",
    50,
    three_clothes,
    "mlp",
    [Setting(label, text, B400) for label, text in FEDFV_ROWS.items()],
    fedfv_columns,
    {"evaluate_every": 1, "lstar": "none"},
)


# --- FedEBA+, Table 1 ---------------------------------------------------------------------------


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


# --- FedPGVC, modes -----------------------------------------------------------------------------


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


# --- EAGLE, Table 1 -----------------------------------------------------------------------------


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

STUDIES = {
    "fedfv": FEDFV,
    "fedfv-batches": FEDFV_BATCHES,
    "fedeba": FEDEBA,
    "pgvc": PGVC,
    "eagle": EAGLE,
}


def run(study: Study, setting: Setting, seed: int, rounds: int, folder: Path) -> fp.Result | None:
    """Return the result of one run: read it, go on with it, or make it; None if it diverged."""
    if (folder / "clients.parquet").exists():
        return fp.Result.load(folder)
    if (folder / "diverged").exists():
        return None
    experiment = fp.Experiment(
        study.federation(seed, setting),
        study.model,
        algorithm=setting.algorithm,
        rounds=rounds,
        solver=setting.solver,
        seed=seed,
        **{**study.conditions, **setting.more},
    )
    try:
        if (folder / "checkpoint").exists():
            return experiment.resume(folder)
        return experiment.run(folder)
    except fp.InputError:
        raise
    except fp.FedparityError as error:
        (folder / "diverged").write_text(str(error))
        return None


def table(rows: dict[str, list[dict[str, float]]]) -> str:
    """Return a markdown table of mean and sample standard deviation over seeds."""
    names = next((list(found[0]) for found in rows.values() if found), [])
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for label, found in rows.items():
        if not found:
            lines.append(f"| {label} | " + " | ".join(["diverged"] * len(names)) + " |")
            continue
        frame = pd.DataFrame(found)
        cells = []
        for name in names:
            values = frame[name].dropna()
            digits = 4 if values.abs().max() < 1 else 2
            spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
            missing = f" ({len(values)} of {len(frame)})" if len(values) < len(frame) else ""
            cells.append(f"{values.mean():.{digits}f}{spread}{missing}" if len(values) else "never")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--rounds", type=int, help="instead of the study's own number")
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"))
    asked = parser.parse_args()
    study = STUDIES[asked.study]
    rounds = asked.rounds or study.rounds
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in SEEDS[: asked.seeds]:
        for place, setting in enumerate(study.settings):
            if asked.only not in setting.label:
                continue
            began = time.monotonic()
            folder = asked.out / asked.study / f"{place:02d}-{seed}-{rounds}"
            result = run(study, setting, seed, rounds, folder)
            rows.setdefault(setting.label, [])
            if result is not None:
                rows[setting.label].append(study.columns(result))
            took = time.monotonic() - began
            print(f"{setting.label}, seed {seed}: {took:.0f} s", file=sys.stderr, flush=True)
    print(f"{study.title}; {rounds} rounds, seeds {', '.join(map(str, SEEDS[: asked.seeds]))}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
