"""``fedparity flower certificates | check | new | local``: the way to a real federation."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedparity.cli.flags import AllowImport, allowed_from
from fedparity.cli.work import RUNS, at_work, console, free, show_result
from fedparity.errors import InputError

app = typer.Typer(help="Run an experiment on a real Flower federation, where the data stays.")

Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS, no node authentication: only for trials.")
]


@app.callback()
def _flower() -> None:
    from fedparity.flower import _require_flwr

    _require_flwr()


@app.command("certificates")
def certificates(
    directory: Annotated[Path, typer.Argument(help="A new directory for them.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many SuperNodes need a key pair.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the SuperLink's machine; may be given again."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the certificates are valid.")] = 90,
) -> None:
    """Make certificates and keys for a trial: one for the SuperLink, a key pair a SuperNode."""
    from fedparity.deploy.certificates import make_certificates

    for path in make_certificates(directory, nodes, host or (), days):
        secret = not path.stat().st_mode & 0o077
        typer.echo(f"{path}{'   secret: stays where it is used' if secret else ''}")


@app.command("check")
def check(
    directory: Annotated[
        Path | None, typer.Argument(help="Directory of certificates and keys.")
    ] = None,
    app_dir: Annotated[
        Path | None, typer.Option("--app", help="The Flower app, for the ids of its clients.")
    ] = None,
    client_id: Annotated[
        list[str] | None,
        typer.Option(help="The client of this site; given several times: of all sites."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the SuperLink answers.")
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Verify certificates, keys, ids and the connection before a run."""
    from fedparity.deploy.check import check_all

    findings = check_all(directory, app_dir, client_id or (), address, insecure=insecure)
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark = "[green]fine[/]" if finding.fine else "[red]wrong[/]"
        table.add_row(mark, Text(finding.what), Text(finding.found))
    console().print(table)
    wrong = sum(not finding.fine for finding in findings)
    if wrong:
        raise InputError(f"{wrong} of {len(findings)} checks found something wrong, see above")


@app.command("new")
def new(
    directory: Annotated[Path, typer.Argument(help="A new directory for the app.")],
    experiment: Annotated[
        Path, typer.Option(help="The experiment file, or the directory of a run.")
    ],
    allow_import: AllowImport = None,
) -> None:
    """Write the Flower app of an experiment: four short files that 'flwr run' takes."""
    from fedparity.deploy.app import new_app

    for path in new_app(directory, experiment, allowed_from(allow_import).packages):
        typer.echo(str(path))
    typer.echo(f"\nTry it on this machine: fedparity flower local {directory}")


@app.command("local")
def local(
    directory: Annotated[Path, typer.Argument(help="The Flower app, see 'fedparity flower new'.")],
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Take only the first of the app's clients.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new directory for the results.")] = None,
    insecure: Insecure = False,
) -> None:
    """Run an app on this machine: SuperLink, a SuperNode a client, and nothing left behind."""
    from fedparity.deploy.app import clients_of
    from fedparity.deploy.trial import trial
    from fedparity.records.rundir import RunDir

    clients = clients_of(directory)
    if nodes is not None and nodes > len(clients):
        raise InputError(f"--nodes {nodes}: {directory} has {len(clients)} clients")
    target = (out or free(RUNS / directory.absolute().name)).absolute()
    RunDir(target).require_unused()
    with at_work(), _terminable(), _private_folder() as folder:
        trial(directory, clients[:nodes], target, folder, secure=not insecure, tell=typer.echo)
    show_result(target)


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Give a folder that nobody else can read; it stays after an error, for the logs in it."""
    folder = Path(tempfile.mkdtemp(prefix="fedparity-"))
    yield folder
    shutil.rmtree(folder)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a request to end be like Ctrl-C, so that what was started is stopped."""
    from fedparity.deploy.processes import ENDINGS

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("stopped")

    # One that is ignored stays so: that is what nohup asks for.
    heard = [one for one in ENDINGS if signal.getsignal(one) == signal.SIG_DFL]
    before = {one: signal.signal(one, interrupt) for one in heard}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
