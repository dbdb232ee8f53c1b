"""``fedparity check``: what is wrong with data or odd about it, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedparity.cli.flags import settings_from
from fedparity.cli.work import console

if TYPE_CHECKING:
    from fedparity.data.doctor import Finding
    from fedparity.imports import Allowed


def check(data: str, given: Mapping[str, Any], data_dir: Path | None, allowed: Allowed) -> None:
    """Print what is found; end with code 2 if nothing could be trained with it."""
    from fedparity.data.recipe import rebuild, studied
    from fedparity.records.settings import recipe_of

    file = Path(data) if data.endswith((".yaml", ".yml")) or Path(data).is_dir() else None
    flags = given if file is not None else {**given, "data": data}
    recipe = recipe_of(settings_from(file, flags, data_dir))
    found = studied(recipe) if "table" in recipe else ()
    if any(finding.problem for finding in found):
        _show(found)
        raise typer.Exit(2)
    federation = rebuild(recipe, data_dir, allowed)
    federation.describe(console())
    _show(federation.check())


def _show(found: Sequence[Finding]) -> None:
    out = console()
    if not found:
        out.print("Nothing odd was found.")
        return
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "where", "what", "remedy"):
        view.add_column(column, overflow="fold")
    for finding in sorted(found, key=lambda finding: not finding.problem):
        told = ("problem" if finding.problem else "note", *finding[:3])
        view.add_row(*(escape(cell) for cell in told))
    out.print(view)
