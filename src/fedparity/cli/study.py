"""Studies on the command line: many runs, a live table, and what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedparity.cli.work import RUNS, at_work, console
from fedparity.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedparity.studies import Study
    from fedparity.studies import Table as SeedTable


def go(
    study: Study,
    workers: int | None,
    again: Sequence[str],
    on: str | None = None,
    *,
    means: bool = True,
) -> None:
    """Run what is missing of a study, and print its numbers, with ``means`` those over seeds."""
    from fedparity.studies.live import Shown

    out = console()
    with at_work():
        try:
            with Shown() as shown:
                study.run(workers, again=tuple(again), on=on, watch=shown)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; what is done is kept: fedparity study {study.file}"
            ) from None
    table, file = study.by_run(), study.file.with_suffix(".csv")
    table.to_csv(file, index=False)
    if means and table["state"].isin(("done", "diverged")).any():
        _print(study.table())
    for _, row in table[table["state"] != "done"].iterrows():
        what = f"{row['algorithm']}, seed {row['seed']}: {row['state']}: {row['reason']}"
        out.print(what, markup=False, soft_wrap=True)
    out.print(f"\nEvery run in {file}", markup=False, soft_wrap=True)
    if (table["state"] != "done").any():
        raise typer.Exit(1)


def _print(table: SeedTable) -> None:
    """Print mean and sample standard deviation over seeds."""
    from rich.markup import escape
    from rich.table import Table

    cells = table.cells()
    shown = Table(*(escape(str(name)) for name in cells), box=None)
    for row in cells.to_numpy():
        shown.add_row(*map(escape, row))
    out = console()
    out.print(shown)
    out.print(table.note, markup=False, style="dim", highlight=False)


def list_packaged() -> None:
    """Print the packaged studies."""
    from rich.markup import escape
    from rich.table import Table

    from fedparity.studies.packaged import listed

    shown = Table("study", "table", box=None)
    for name, title in listed().items():
        shown.add_row(name, escape(title))
    console().print(shown)


def go_packaged(
    name: str,
    out: Path | None,
    quick: bool,
    workers: int | None,
    again: Sequence[str],
    data_dir: Path | None,
    page: Path | None,
    on: str | None,
) -> None:
    """Run what is missing of a packaged study, and print ours beside what was published.

    With a page, nothing is run: what is there is written into it.
    """
    from fedparity.studies import provenance
    from fedparity.studies.beside import Beside
    from fedparity.studies.packaged import packaged
    from fedparity.studies.page import section, write

    found = packaged(name)
    study = found.planned(out or RUNS / name, quick, data_dir)
    beside, text = Beside(found, study), console()
    if page is not None:
        write(page, study.name, section(beside, quick))
        text.print(f"written into {page}", markup=False, soft_wrap=True)
        return
    text.print(f"{found.title}\n{found.protocol}", markup=False)
    if found.missing:
        text.print(f"Not stored: {found.missing}", markup=False)
    if any(study.state(run).state in ("waiting", "begun", *again) for run in study.runs):
        study.out.mkdir(parents=True, exist_ok=True)
        provenance.keep(study.out)
    try:
        go(study, workers, again, on, means=False)
    finally:
        if next(study.results(), None) is not None:
            _print_plain("Ours, with 95 % intervals, and what was published:", beside.cells())
            _print_plain("Where the orders hold, and by how much:", beside.holding())


def _print_plain(title: str, table: DataFrame) -> None:
    if len(table):
        told = table.to_string(index=False)
        console().print(f"\n{title}\n\n{told}", markup=False, highlight=False, soft_wrap=True)


def chosen(texts: Sequence[str] | None) -> dict[str, list[Any]]:
    """Return the grid that ``--set solver.lr=0.01,0.1`` stands for.

    >>> chosen(["solver.lr=0.01,0.1", "data.partition=iid,dirichlet(alpha=0.3)"])
    {'solver.lr': [0.01, 0.1], 'data.partition': ['iid', 'dirichlet(alpha=0.3)']}
    """
    import yaml

    from fedparity.spec import split_list

    found = {}
    for text in texts or ():
        key, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--set expects KEY=VALUE,VALUE, got '{text}'")
        try:
            each = [one if "(" in one else yaml.safe_load(one) for one in split_list(values)]
        except yaml.YAMLError:
            raise InputError(f"--set {key.strip()}: cannot read '{values}'") from None
        found[key.strip()] = each
    return found


def renamed(algorithms: Sequence[str], labels: Sequence[str] | None) -> dict[str, str]:
    """Return the algorithms by label: those listed by their texts, and ``--label NAME=TEXT``.

    >>> renamed(["fedavg"], ["EAGLE=eagle(lam=2)"])
    {'fedavg': 'fedavg', 'EAGLE': 'eagle(lam=2)'}
    """
    found = {text: text for text in algorithms}
    for text in labels or ():
        label, equals, algorithm = text.partition("=")
        if not equals or not label.strip() or "(" in label:
            raise InputError(f"--label expects NAME=ALGORITHM, got '{text}'")
        found = {k: v for k, v in found.items() if v != algorithm.strip()}
        found[label.strip()] = algorithm.strip()
    return found


def seeds_from(text: str) -> int | list[int]:
    """Return how many seeds, or which: ``5`` or ``0,42,100``."""
    try:
        each = [int(one) for one in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds expects how many, or which (0,42), got '{text}'") from None
    return each if "," in text else each[0]


def compared(
    settings: Mapping[str, Any],
    named: Mapping[str, Any],
    algorithms: Sequence[str],
    out: Path,
    grid: Sequence[str] | None,
    labels: Sequence[str] | None,
    seeds: str | None,
    data_dir: Path | None,
    allow_import: Sequence[str] | None,
    workers: int | None,
) -> None:
    """Run a comparison as a study; ``named`` are the settings that the flags name."""
    from fedparity.cli.comparison import weighed
    from fedparity.cli.flags import allowed_from
    from fedparity.studies import Study
    from fedparity.studies.address import digest

    values, texts = chosen(grid), renamed(algorithms, labels)
    typed = [str(value) for each in values.values() for value in each]
    typed += [text for label, text in texts.items() if label != text]
    allowed = allowed_from(allow_import, {**named, "algorithms": [*named["algorithms"], *typed]})
    shared = {k: v for k, v in settings.items() if k != "seed"}
    shared = weighed(shared, [*texts.values()], allowed)
    found = Study(
        shared,
        texts,
        out,
        grid=values,
        seeds=seeds_from(seeds) if seeds else [settings.get("seed", 0)],
        data_dir=data_dir,
        allowed=allowed,
        name=f"compare-{digest({'settings': shared, 'algorithms': texts, 'grid': values})[:6]}",
    )
    go(found, workers, ())
