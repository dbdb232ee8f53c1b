"""The commands, each a few lines over the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedparity.cli import flower, many_runs, new
from fedparity.cli.flags import (
    ALGORITHM,
    CHECKED,
    FLAGS,
    ROUNDS,
    AllowImport,
    allowed_from,
    settings_from,
    takes_settings,
)
from fedparity.cli.options import DataDir, File, Out, Workers
from fedparity.cli.work import (
    RUNS,
    at_work,
    console,
    free,
    introduce,
    progress,
    show_result,
    slug,
)
from fedparity.errors import InputError

app = typer.Typer(
    help="Train one model over many unlike clients, and show who gains and who pays.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(many_runs.app)
app.add_typer(flower.app, name="flower")
app.add_typer(new.app, name="new")

TrackOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Tell csv, tensorboard, mlflow or wandb of every round."),
]


def _tracked(asked: list[str] | None) -> tuple[str, ...]:
    """Return the trackers to open; a wrong name is told before anything is read."""
    from fedparity.reports.tracking import trackers

    told = tuple(asked or ())
    trackers(told)
    return told


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fedparity {version('fedparity')}")
        raise typer.Exit


@app.callback()
def _fedparity(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command("run")
@takes_settings()
def run(
    file: File = None,
    *,
    out: Out = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    track: TrackOption = None,
    **given: Any,
) -> None:
    """Train with one algorithm and show what every client got."""
    settings = settings_from(file, given, data_dir)
    allowed = allowed_from(allow_import, settings_from(None, given))
    from fedparity.records.rundir import RunDir
    from fedparity.run.file import experiment

    told = _tracked(track)
    if out is not None:
        RunDir(out).require_unused()
    made = experiment(settings, data_dir=data_dir, allowed=allowed)
    directory = out or free(RUNS / slug(made.setup.algorithm.text))
    introduce(made, console())
    with at_work(directory), progress() as watch:
        made.run(directory, watch, track=told)
    show_result(directory)


@app.command("compare")
@takes_settings(without=(ALGORITHM,))
def compare(
    file: File = None,
    *,
    algorithms: Annotated[
        str | None,
        typer.Option(help="Algorithms, such as 'fedavg,qffl(q=5),eagle(lam=2)'.", metavar="LIST"),
    ] = None,
    out: Out = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    track: TrackOption = None,
    seeds: Annotated[
        str | None, typer.Option(help="Over so many seeds, or these: 5, or 0,42.", metavar="LIST")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=LIST", help="Values of a setting: solver.lr=0.01,0.1."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ALGORITHM", help="An algorithm under a name of its own."),
    ] = None,
    workers: Workers = None,
    **given: Any,
) -> None:
    """Train with several algorithms under the same conditions and compare them."""
    settings = settings_from(file, given, data_dir)
    from fedparity.cli import comparison
    from fedparity.spec import split_list

    listed = settings.pop("algorithms", [])
    chosen = split_list(algorithms) if algorithms is not None else [str(a) for a in listed]
    if not chosen and not label:
        raise InputError("name the algorithms to compare: --algorithms 'fedavg,eagle(lam=1)'")
    named = {**settings_from(None, given), "algorithms": chosen if algorithms is not None else []}
    if seeds is not None or grid or label or workers:
        from fedparity.cli.study import compared

        if track:
            raise InputError("--track tells of single runs: leave it out with --seeds or --set")
        where = out or RUNS / "compare-seeds"
        compared(
            settings, named, chosen, where, grid, label, seeds, data_dir, allow_import, workers
        )
        return
    allowed = allowed_from(allow_import, named)
    told, directory = _tracked(track), out or free(RUNS / "compare")
    comparison.start(settings, chosen, directory, data_dir, allowed, told)


@app.command("resume")
def resume(
    directory: Annotated[Path, typer.Argument(help="Directory of a run or of a comparison.")],
    rounds: Annotated[int | None, typer.Option(help="Go on up to this round.")] = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    track: TrackOption = None,
) -> None:
    """Go on with a run from its last checkpoint; all settings come from its directory."""
    from fedparity.cli import comparison
    from fedparity.records.rundir import RunDir
    from fedparity.run import file

    allowed, told = allowed_from(allow_import), _tracked(track)
    if (directory / comparison.FILE).exists():
        comparison.resume(directory, rounds, data_dir, allowed, told)
        return
    folder = RunDir(directory)
    settings = folder.settings()
    if folder.clients.exists() and rounds in (None, settings.get("rounds")):
        typer.echo(f"{directory} is finished; --rounds goes further.")
    else:
        with at_work(directory), progress() as watch:
            file.resume(
                directory,
                rounds=rounds,
                data_dir=data_dir,
                allow_import=allowed.packages,
                watch=watch,
                track=told,
            )
    show_result(directory)


@app.command("predict")
def predict(
    directory: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    file: Annotated[Path, typer.Argument(help="A CSV or parquet file, a row an example.")],
    out: Annotated[
        Path | None, typer.Option(help="A new CSV file; by default it is printed.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Whose own model; by default the shared one.")
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Predict the rows of a table with a model of a run, and write it as CSV."""
    from fedparity.data import table
    from fedparity.records.result import Result
    from fedparity.records.rundir import RunDir

    allowed = allowed_from(allow_import)
    if out is not None and out.exists():
        raise InputError(f"{out} is there already: name a new file")
    RunDir(directory).settings()  # before the table is read
    result, rows = Result.load(directory), table.read(file)
    packages = allowed.packages
    said = result.predict(rows, client=client, allow_import=packages)
    found = rows.assign(prediction=said)
    if result.record.get("predicts") == "classes":
        likely = result.predict_proba(rows, client=client, allow_import=packages)
        found = found.assign(**{f"probability_{name}": likely[name].to_numpy() for name in likely})
    text = found.to_csv(out, index=False)
    typer.echo(text if out is None else f"{len(found):,} rows in {out}", nl=out is not None)


@app.command("export")
def export(
    directory: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    onnx: Annotated[Path | None, typer.Option(help="A new file of ONNX.")] = None,
    pt2: Annotated[
        Path | None, typer.Option(help="A new file for torch.export.load, in place of TorchScript.")
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Write the shared model of a run in a format that other programs read."""
    from fedparity.records.export import shape_of, to_onnx, to_pt2
    from fedparity.records.model import load_model
    from fedparity.records.prediction import example_of
    from fedparity.records.rundir import RunDir

    if onnx is None and pt2 is None:
        raise InputError("name a file to write: --onnx FILE or --pt2 FILE")
    for file in (onnx, pt2):
        if file is not None and file.exists():
            raise InputError(f"{file} is there already: name a new file")
    module = load_model(directory, allow_import=allowed_from(allow_import).packages)
    example = example_of(RunDir(directory).settings()["record"], module)
    for file, write in ((onnx, to_onnx), (pt2, to_pt2)):
        if file is not None:
            write(module, example, file)
            typer.echo(f"{directory} is in {file}; its inputs are {shape_of(example)}")


@app.command("profile")
@takes_settings(without=(ROUNDS,))
def profile(
    file: File = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to watch.")] = 20,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    **given: Any,
) -> None:
    """Run a few rounds and show where the time of a round goes."""
    settings = settings_from(file, given, data_dir)
    from fedparity.profiling import profile as watch
    from fedparity.profiling.table import show
    from fedparity.run.file import experiment

    allowed = allowed_from(allow_import, settings_from(None, given))
    made = experiment(settings, data_dir=data_dir, allowed=allowed)
    out = console()
    introduce(made, out)
    with at_work():
        found = watch(made, rounds)
    show(found, out)


@app.command("check")
@takes_settings(without=tuple(flag for flag in FLAGS if flag not in CHECKED))
def check(
    data: Annotated[
        str, typer.Argument(help="A table, 'sites/*.csv', a dataset, an experiment file or a run.")
    ],
    *,
    contract: Annotated[
        Path | None,
        typer.Option(help="A contract, to judge a run by: exit 0 holds, 1 broken, 3 open."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="A run that clauses compare with, if it is not beside the other."
        ),
    ] = None,
    data_dir: DataDir = None,
    allow_import: AllowImport = None,
    **given: Any,
) -> None:
    """Tell all that is wrong with data or odd about it, with remedies; or judge a run."""
    from fedparity.cli import doctor

    if contract is not None:
        from fedparity.cli.contract import check as judge

        others = {**given, "data_dir": data_dir, "allow_import": allow_import}
        named = [name for name, value in others.items() if value is not None]
        if named:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise InputError(f"--contract judges a run as it is: leave out {flags}")
        judge(Path(data), contract, against or ())
        return
    if against:
        raise InputError("--against is for clauses of a --contract: name one")
    allowed = allowed_from(allow_import, settings_from(None, {**given, "data": data}))
    doctor.check(data, given, data_dir, allowed)


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help="algorithms, parts, datasets, ...: without one, the lists are listed."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """List what can be named, with settings and costs."""
    from fedparity.catalogue.methods import listing, lists

    found = lists() if kind is None else listing(kind)
    if markdown:
        typer.echo(found.markdown())
    else:
        found.show(console())


@app.command("explain")
def explain(
    algorithm: Annotated[str, typer.Argument(help="An algorithm, such as 'eagle+prox(mu=0.1)'.")],
    parameters: Annotated[
        int, typer.Option(min=1, help="Parameters of the model, for the floats sent.")
    ] = 199_210,
) -> None:
    """Tell what an algorithm sends, what the server learns, what can be set; or of any name."""
    from fedparity.catalogue.explanation import explain as show

    allowed_from((), {"algorithm": algorithm})
    show(algorithm, parameters, console())
