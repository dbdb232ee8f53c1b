"""``fedparity tune``: settings searched for an aim, on validation examples only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedparity.cli.work import at_work, console, progress
from fedparity.errors import InputError

if TYPE_CHECKING:
    from fedparity.imports import Allowed


def search(
    settings: dict[str, Any],
    over: Sequence[str],
    aim: str,
    trials: int,
    journal: Path | None,
    data_dir: Path | None,
    allowed: Allowed,
) -> None:
    """Search and print the best settings; end with code 1 if nothing meets the conditions."""
    from fedparity.run.file import experiment
    from fedparity.tuning import tune

    space = {}
    for text in over:
        name, mark, values = text.partition("=")
        if not mark:
            raise InputError(f"cannot read --over '{text}': write 'solver.lr=0.01..1 log'")
        space[name.strip()] = values
    made = experiment(settings, data_dir=data_dir, allowed=allowed)
    with at_work(), progress() as watch:
        found = tune(made, space, aim=aim, trials=trials, journal=journal, watch=watch)
    out = console()
    out.print(found.trials.to_string(index=False), markup=False, soft_wrap=True)
    for name, numbers in found.references.items():
        told = ", ".join(f"{summary} {value:.4g}" for summary, value in numbers.items())
        out.print(f"{name}: {told}", markup=False, soft_wrap=True)
    if found.best is None:
        out.print("No trial met every condition: loosen the aim, or search more.", markup=False)
        raise typer.Exit(1)
    told = ", ".join(f"{name}={value}" for name, value in found.best.items())
    out.print(f"Best on validation: {told}", markup=False, soft_wrap=True)
