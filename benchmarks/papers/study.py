"""A study: algorithms under conditions, run over seeds and told as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    seeds: tuple[int, ...] = SEEDS


def accuracies(result: fp.Result, split: str = "test") -> pd.DataFrame:
    """Return accuracy in percent, a row a round and a column a client."""
    rows = result.history.query("split == @split and metric == 'accuracy' and model == 'global'")
    return 100 * rows.pivot(index="round", columns="client", values="value")


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


def write(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of a page that have this name."""
    begin, end = (f"<!-- {name}: {mark} -->" for mark in ("begin", "end"))
    before, first, rest = page.read_text(encoding="utf-8").partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise fp.InputError(f"{page} has no marks {begin} and {end} to write between: add them")
    fresh = page.with_name(f".{page.name}.new")
    fresh.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    fresh.replace(page)
