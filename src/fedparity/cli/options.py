"""Arguments and options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path | None,
    typer.Argument(help="An experiment file, or the directory of a run; flags override it."),
]
Out = Annotated[Path | None, typer.Option(help="A new directory for the results.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes side by side; by default one a core.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where datasets are; else $FEDPARITY_DATA, else ~/.cache/fedparity."),
]
