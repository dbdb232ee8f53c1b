"""``fedparity coalitions``: who is better off alone, and which group would leave together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedparity.cli.work import at_work, console, introduce, progress
from fedparity.errors import InputError

if TYPE_CHECKING:
    from fedparity.imports import Allowed
    from fedparity.joining import Coalitions
    from fedparity.run.experiment import Experiment

SHOWN = 10
"""Rows of groups and of pairs that are printed; the file has all coalitions."""


def show(
    settings: dict[str, Any],
    seeds: int,
    confidence: float,
    out: Path | None,
    data_dir: Path | None,
    allowed: Allowed,
) -> None:
    """Train all coalitions on every seed and print what they tell."""
    from fedparity.joining import coalitions, lean
    from fedparity.run.file import experiment
    from fedparity.studies.grid import seeds_of

    if out is not None and out.exists():
        raise InputError(f"{out} exists: name a new file")
    (first,) = seeds_of([settings.get("seed", 0)])

    def of_seed(seed: int) -> Experiment:
        return experiment({**settings, "seed": seed}, data_dir=data_dir, allowed=allowed)

    screen = console()
    introduce(lean(of_seed(first)), screen)
    data = settings.get("data")
    resplit = not isinstance(data, Mapping) or data.get("seed") is None  # dealt by the run's seed
    with at_work(), progress() as watch, _kept(out) as keep:
        found = coalitions(
            of_seed,
            seeds=range(first, first + seeds),
            confidence=confidence,
            watch=watch,
            resplit=resplit,
            keep=keep,
        )
    _print(found, screen)
    if found.overlap:
        screen.print(
            "Seeds split the same examples anew, so intervals are widened (Nadeau and Bengio).",
            markup=False,
            soft_wrap=True,
        )
    if out is not None:
        screen.print(f"\nThe losses of all coalitions are in {out}", markup=False)


@contextmanager
def _kept(file: Path | None) -> Iterator[Callable[[pd.DataFrame], None] | None]:
    """Give what writes rows beside a file as they come; at the end they take its place."""
    if file is None:
        yield None
        return
    beside = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = beside.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from None
    with handle:

        def keep(rows: pd.DataFrame) -> None:
            rows.to_csv(handle, index=False, header=not handle.tell())
            handle.flush()

        yield keep
    beside.replace(file)


def _print(found: Coalitions, screen: Console) -> None:
    trainings = sum(map(len, found.losses))
    level = f"{found.confidence:.0%}"
    screen.print(
        f"\n{trainings} trainings, {len(found.seeds)} seeds; {found.split} losses, lower is "
        f"better; intervals {level} over seeds",
        markup=False,
        soft_wrap=True,
    )
    if found.diverged:
        screen.print(f"{found.diverged} of them diverged", markup=False)
    if len(found.seeds) == 1:
        screen.print("One seed has no intervals, so nothing can be told: --seeds 3", markup=False)
    _rows(found.alone(), screen)
    leaving = found.leaving()
    screen.print(
        "Groups that may gain by leaving:"
        if len(leaving)
        else "No group gains by leaving on average.",
        markup=False,
    )
    if len(leaving):
        ordered = leaving.sort_values("verdict", ascending=False, kind="stable")
        _rows(ordered.head(SHOWN), screen)
        _rest(len(leaving), screen)
    told = found.shapley()
    certain = told[(told["low"] > 0) | (told["high"] < 0)]
    screen.print(
        f"What clients bring to each other's loss (Shapley; positive helps): {len(certain)} of "
        f"{len(told)} have an interval without 0.",
        markup=False,
        soft_wrap=True,
    )
    strongest = told.reindex(told["value"].abs().sort_values(ascending=False).index)
    _rows(strongest.head(SHOWN), screen)
    _rest(len(told), screen)
    if found.complete and found.finite:
        _partitions(found, screen)


def _partitions(found: Coalitions, screen: Console) -> None:
    stable = found.stable()
    if not stable:
        screen.print("By mean losses, of every partition some group would leave.", markup=False)
    for blocks in stable:
        named = " | ".join(" + ".join(block) for block in blocks)
        screen.print(
            f"By mean losses no group would leave {named}; certainly: {found.verdict(blocks)}",
            markup=False,
            soft_wrap=True,
        )


def _rest(rows: int, screen: Console) -> None:
    if rows > SHOWN:
        screen.print(f"... and {rows - SHOWN} more", markup=False)


def _rows(table: pd.DataFrame, screen: Console) -> None:
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in table:
        number = pd.api.types.is_numeric_dtype(table[name])
        view.add_column(str(name), justify="right" if number else "left", overflow="fold")
    for row in table.itertuples(index=False):
        view.add_row(*(escape(_cell(value)) for value in row))
    screen.print(view)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4f}"
    return str(value)
