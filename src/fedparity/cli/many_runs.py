"""The commands of many runs: ``coalitions``, ``study``, ``tune``, ``figures``, ``frontier``."""

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
        typer.Argument(help="A study's file, a directory that holds one, or a packaged study."),
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
    on: Annotated[
        str | None,
        typer.Option(metavar="ray", help="Do the runs on a Ray cluster (RAY_ADDRESS, or local)."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="PAGE", help="Run nothing: write a packaged study's section."),
    ] = None,
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
        work.go_packaged(file, out, quick, workers, again or (), data_dir, write, on)
        return
    if quick or write is not None:
        flag = "--quick" if quick else "--write"
        raise InputError(f"{flag} is for packaged studies (see: fedparity study --list)")
    from fedparity.studies import Study

    allowed = allowed_from(allow_import)
    found = Study.load(file, out, data_dir=data_dir, allow_import=allowed.packages)
    work.go(found, workers, again or (), on)


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


@app.command("figures")
def figures(
    directory: Annotated[Path, typer.Argument(help="A study, a comparison or a run.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="A folder; by default 'figures' in the directory.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="svg, pdf, png, or several.")] = "pdf,svg",
    metric: Annotated[str, typer.Option(help="Of curves, clients and payers.")] = "accuracy",
    reference: Annotated[
        str | None, typer.Option(help="Against which who pays is drawn; by default the first.")
    ] = None,
) -> None:
    """Draw curves, clients, the frontier, who pays, and ranks, as far as the runs allow."""
    from fedparity.cli.figures import draw

    beside = directory / "figures" if directory.is_dir() else directory.with_suffix("")
    draw(directory, out or beside, form, metric, reference)


@app.command("frontier")
def frontier(
    directory: Annotated[Path, typer.Argument(help="A study or a comparison that has been run.")],
    *,
    across: Annotated[
        str, typer.Option(help="Two summaries of the clients.")
    ] = "mean_accuracy,gap_variance",
    reference: Annotated[
        str | None, typer.Option(help="Against which levelling down is judged.")
    ] = None,
    split: Annotated[str, typer.Option(help="validation, or test.")] = "validation",
    picture: Annotated[Path | None, typer.Option(help="A .pdf, .svg or .png file.")] = None,
) -> None:
    """Tell which settings no other beats in two summaries, and which one to take."""
    from fedparity.cli.figures import tell_frontier

    tell_frontier(directory, across, reference, split, picture)
