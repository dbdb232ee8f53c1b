"""A profile as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from fedparity.profiling import Profile

LEAST = 0.001
"""Share below which phases are summed up in one line."""


def show(found: Profile, out: Console) -> None:
    """Print where the time of a round goes, and what could be changed."""
    table = Table(box=None, title_justify="left")
    table.add_column("phase")
    table.add_column("ms a round", justify="right")
    table.add_column("share", justify="right")
    small = [phase for phase in found.phases if phase.share < LEAST]
    for phase in found.phases:
        if phase.share >= LEAST:
            table.add_row(phase.name, f"{phase.ms:.2f}", f"{phase.share:.1%}")
    if small:
        ms, share = sum(p.ms for p in small), sum(p.share for p in small)
        table.add_row("all else", f"{ms:.2f}", f"{share:.1%}")
    table.add_row("a round", f"{found.ms:.2f}", "100.0%", style="bold")
    out.print(table)
    out.print()
    out.print(
        f"Engine {found.engine}: {found.reason}. {found.rounds} rounds watched; training alone "
        f"takes {found.unwatched:.2f} ms a round when nobody looks.",
        markup=False,
    )
    if found.parallel:
        out.print(
            "Clients ran side by side: the time of an exchange is divided among its phases as the "
            "threads spent theirs.",
            markup=False,
        )
    for sentence in found.advice:
        out.print(sentence, markup=False)
