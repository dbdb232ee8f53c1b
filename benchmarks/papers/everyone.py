"""All methods under the same conditions, each at its defaults: what each makes of the clients.

A method that keeps personal models is told by these, as its clients would use them. Cells run side
by side, one a core. What is finished is read and what was stopped goes on when the command is given
again; a method that does not run is a row with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from cells import Cell, Found, outcomes
from study import Setting, Study, run, table, write

import fedparity as fp
from fedparity.catalogue.methods import named_algorithms
from fedparity.catalogue.traffic import Amount, traffic
from fedparity.certainty import GAINS, PAYS
from fedparity.learning.layout import Layout
from fedparity.recipes import algorithm
from fedparity.run.sampling import PowerOfChoice, read
from fedparity.workers import cores

FIRST = "fedavg"
"""Run before the others, so that L* is there for them."""
COMPOSED = ("fedeba_plus(alpha=0.5, aggregate='given')", "fedfv+varp")
"""What the papers' tables compare with besides the named algorithms."""
SAMPLINGS = ("size", "size_replaced", "power_of_choice(candidates=20)", "available(share=0.5)")


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
    samplings: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """The rows of the table: label -> algorithm, and what else is unlike the others."""
        names = dict.fromkeys([FIRST, *named_algorithms(by_group=False), *COMPOSED])
        plain: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in names}
        drawn = {f"{FIRST}, {how}": (FIRST, {"sampling": how}) for how in self.samplings}
        return {**plain, **drawn}


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
        SAMPLINGS,
    ),
}


def columns(result: fp.Result) -> dict[str, float]:
    """Return the numbers of a run: of personal models where there are any, at the last round.

    Who trained alone neither gains nor pays.
    """
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
        "gain": (result.verdicts["verdict"] == GAINS).sum(),
        "pay": (result.verdicts["verdict"] == PAYS).sum(),
    }


def one(cell: Cell) -> Found:
    """Run a cell, or read it, or go on with it."""
    made = ALL[cell.study]
    text, more = made.rows[cell.label]
    setting = Setting(cell.label, text, made.solver, more)
    try:
        result = run(made.study, setting, cell.seed, cell.rounds, cell.folder)
    except fp.InputError as error:
        return Found(reason=str(error))
    if result is None:
        return Found(reason=(cell.folder / "diverged").read_text())
    if result.record.get("diverged"):
        return Found(reason=f"diverged: {result.record['diverged']}")
    cohort = made.study.conditions.get("cohort", len(result.clients))
    costs = cost(text, more, result, cohort)
    return Found({**columns(result), **costs, "seconds": seconds(result)})


def cost(text: str, more: dict[str, Any], result: fp.Result, cohort: int) -> dict[str, float]:
    """Return what a client of a round receives and sends, on average, in kilobytes of 32 bits."""
    sent = traffic(algorithm(text))
    layout = Layout(result.model())
    each = 2.0 * layout.size * sent.shares_model
    each += numbers(sent.extra_down, layout) + numbers(sent.extra_up, layout)
    if "candidates=" in str(more.get("sampling")):  # all are sent the model and tell a loss
        candidates = drawn(more["sampling"])
        each += ((candidates - cohort) * layout.size + candidates) / cohort
    return {"kB": 4 * each / 1000, "exchanges": len(sent.exchanges)}


def drawn(sampling: str) -> int:
    """Return how many candidates a power-of-choice has.

    >>> drawn("power_of_choice(candidates=20)")
    20
    """
    found = read(sampling)
    assert isinstance(found, PowerOfChoice)
    return found.candidates


def numbers(amount: Amount, layout: Layout) -> int:
    """Return how many numbers an amount is with this model."""
    tails = sum(layout.size - layout.tail(count) for count in amount.layers)
    return amount.models * layout.size + tails + amount.scalars


def main(
    name: str, out: Path, seeds: int | None, rounds: int | None, only: str, page: Path | None
) -> None:
    """Run what is missing and print a row a method, or write them between the marks of a page."""
    made = ALL[name]
    rounds = rounds or made.study.rounds
    chosen = made.study.seeds[:seeds]
    labels = [label for label in made.rows if only in label]
    cells = [
        Cell(name, label, seed, rounds, out / name / f"{slug(label)}-{seed}-{rounds}")
        for seed in chosen
        for label in labels
    ]
    cells.sort(key=lambda cell: cell.label != FIRST)
    found = dict(outcomes(cells, one, cores()))
    title = f"{made.study.title}; {rounds} rounds, seeds {', '.join(map(str, chosen))}"
    rows = told([(cell.label, found[cell]) for cell in cells])
    print(f"\n{title}\n\n{rows}")
    if page is not None:
        write(page, name, f"{title}:\n\n{rows}")


def slug(label: str) -> str:
    """Return a label as the name of a folder.

    >>> slug("fedavg, power_of_choice(candidates=20)")
    'fedavg-power_of_choice-candidates-20'
    """
    return re.sub(r"[^\w.+]+", "-", label).strip("-")


def told(found: Sequence[tuple[str, Found]]) -> str:
    """Return the table: a row a method, with the reason where it has no number."""
    good: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, dict[str, None]] = {}
    for label, outcome in found:
        if outcome.reason:
            failed.setdefault(label, {})[outcome.reason] = None
        else:
            good.setdefault(label, []).append(outcome.numbers)
    lines = table(good).splitlines() if good else []
    for label, reasons in failed.items():
        why = "; ".join(reasons).replace("|", "\\|")
        many = sum(bool(outcome.reason) for name, outcome in found if name == label)
        lines.append(f"| {label} | {many} without a number: {why} |")
    return "\n".join(lines)


def seconds(result: fp.Result) -> float:
    """Return the seconds of a run's rounds on one core, without evaluation and L*.

    All count as the median one, so that what else the machine does for a while shows less.
    """
    assert result.path is not None
    log = pd.read_json(result.path / "log.jsonl", lines=True)
    rounds = log.loc[log["round"] > 0, "seconds"].dropna()
    return float(len(rounds) * rounds.median())
