"""The commands that do many runs for one answer: ``coalitions``, ``study``, ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedparity.cli.flags import AllowImport, allowed_from, settings_from, takes_settings
from fedparity.cli.options import DataDir, File, Workers
from fedparity.errors import InputError

app = typer.Typer()


@app.command("coalitions")
@takes_settings()
def coalitions(
    file: File = None,
    *,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds of data and training, from --seed on.")
    ] = 3,
    confidence: Annotated[float, typer.Option(help="Of intervals and verdicts.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="A new CSV file: every loss.")] = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    **given: Any,
) -> None:
    """Train every coalition of clients: who is better off alone, who would leave together."""
    settings = settings_from(file, given, data_dir)
    from fedparity.cli import coalitions as work

    allowed = allowed_from(allow_import, settings_from(None, given))
    work.show(settings, seeds, confidence, out, data_dir, allowed)


@app.command("study")
def study(
    file: Annotated[
        str | None,
        typer.Argument(help="A study's file, its directory to go on, or a packaged study."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The study's directory.")] = None,
    workers: Workers = None,
    again: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Do runs again that are failed or damaged."),
    ] = None,
    list_them: Annotated[
        bool, typer.Option("--list", help="List the packaged studies: tables of the papers.")
    ] = False,
    quick: Annotated[bool, typer.Option(help="A packaged study in minutes.")] = False,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
) -> None:
    """Do the runs of a study that are missing, and show the numbers of all."""
    from fedparity.cli import study as work

    if list_them:
        work.list_packaged()
        return
    if file is None:
        raise InputError("name a study's file, or a packaged study (see: fedparity study --list)")
    if not Path(file).exists() and "." not in file and "/" not in file:
        work.go_packaged(file, out, quick, workers, again or (), data_dir)
        return
    if quick:
        raise InputError("--quick is for packaged studies (see: fedparity study --list)")
    from fedparity.studies import Study

    allowed = allowed_from(allow_import)
    found = Study.load(file, out, data_dir=data_dir, allow_import=allowed.packages)
    work.go(found, workers, again or ())


@app.command("tune")
@takes_settings()
def tune(
    file: File = None,
    *,
    aim: Annotated[
        str,
        typer.Option(help="Such as 'lowest gap_variance with accuracy within 0.5 of fedavg'."),
    ],
    over: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUES", help="Such as 'solver.lr=0.01..1 log'; repeatable."),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials, those in the journal counted.")] = 30,
    journal: Annotated[
        Path | None, typer.Option(help="A file from which the search goes on.")
    ] = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    **given: Any,
) -> None:
    """Search settings for an aim, on validation examples only."""
    settings = settings_from(file, given, data_dir)
    from fedparity.cli import tuning

    allowed = allowed_from(allow_import, settings_from(None, given))
    tuning.search(settings, over, aim, trials, journal, data_dir, allowed)
