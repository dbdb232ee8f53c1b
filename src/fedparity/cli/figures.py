"""``fedparity figures`` and ``fedparity frontier``: what finished runs look like together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedparity import figures
from fedparity.cli.work import console, slug
from fedparity.errors import InputError, unknown
from fedparity.figures import FORMATS, Figure, Labelled
from fedparity.figures.figure import altair
from fedparity.fronts import frontier
from fedparity.studies import Study
from fedparity.studies.places import studies_in

SPLITS = ("validation", "test")


def finished(directory: Path, across_settings: bool = False) -> list[Labelled]:
    """Return the finished runs of a study (its directory or its file), a comparison or a run."""
    if not directory.exists():
        raise InputError(f"{directory} is not there: name a study, a comparison or a run")
    if directory.is_dir() and not studies_in(directory):
        return figures.runs_of(directory)
    found = Study.load(directory).labelled(across_settings)
    if not found:
        raise InputError(f"{directory} has no finished run: fedparity study {directory}")
    return found


def draw(directory: Path, out: Path, form: str, metric: str, reference: str | None) -> None:
    """Write every figure that the runs allow, and say why one is not drawn."""
    forms = [each.strip() for each in form.split(",")]
    for each in forms:
        if each not in FORMATS:
            raise unknown("format of a figure", each, FORMATS)
    altair()
    runs = finished(directory)
    labels = list(dict.fromkeys(run.label for run in runs))
    base = labels[0] if reference is None else reference
    if base not in labels:
        raise unknown("reference", base, labels)
    charts: dict[str, Callable[[], Figure]] = {
        "curves": lambda: figures.curves(runs, metric),
        "curves-worst": lambda: figures.curves(runs, metric, "worst"),
        "clients": lambda: figures.clients(runs, metric),
        "frontier": lambda: figures.front(frontier(figures.by_label(runs))),
        "ranks": lambda: figures.ranks(finished(directory, across_settings=True)),
    }
    for place, label in enumerate(label for label in labels if label != base):
        name = f"payers-{place + 1}-{slug(label)[:60]}"
        charts[name] = lambda label=label: figures.payers(runs, label, base, metric)  # type: ignore[misc]
    out.mkdir(parents=True, exist_ok=True)
    drawn, text = 0, console()
    for name, chart in charts.items():
        try:
            made = chart()
        except InputError as error:
            text.print(f"no {name}: {error}", markup=False, soft_wrap=True)
            continue
        drawn += 1
        for each in forms:
            text.print(str(made.save(out / f"{name}.{each}")), markup=False, soft_wrap=True)
    if not drawn:
        raise InputError(f"{directory} allows no figure of {metric}")


def tell_frontier(
    directory: Path, across: str, reference: str | None, split: str, picture: Path | None
) -> None:
    """Print the table of a frontier and the recommendation in words, and draw it."""
    first, comma, second = across.partition(",")
    if not comma or "," in second:
        raise InputError(f"--across expects two summaries, A,B, got '{across}'")
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    if picture is not None and picture.suffix.removeprefix(".").lower() not in FORMATS:
        raise unknown("format of a figure", picture.suffix.removeprefix("."), FORMATS)
    runs = figures.by_label(finished(directory))
    found = frontier(
        runs,
        across=(first.strip(), second.strip()),
        reference=reference,
        split="test" if split == "test" else "validation",
    )
    from rich.markup import escape
    from rich.table import Table

    shown = Table("setting", *found.across, "front", "levels down", box=None)
    for row in found.table.to_dict("records"):
        cells = [
            f"{row[name]:.4g} [{row[f'{name}_low']:.4g}, {row[f'{name}_high']:.4g}]"
            for name in found.across
        ]
        words = ["yes" if row[name] else "" for name in ("front", "levelling_down")]
        shown.add_row(*(escape(str(cell)) for cell in (row["setting"], *cells, *words)))
    out = console()
    out.print(shown)
    out.print(f"\n{found.reason}", markup=False, soft_wrap=True)
    corner = ", ".join(
        f"{name} {end:.4g}" for name, end in zip(found.across, found.corner, strict=True)
    )
    area = f"Hypervolume of the front {found.hypervolume:.4g}, from the corner {corner}."
    out.print(area, markup=False, soft_wrap=True)
    if picture is not None:
        out.print(str(figures.front(found).save(picture)), markup=False, soft_wrap=True)
