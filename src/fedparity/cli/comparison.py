"""Several algorithms under the same conditions, each in a directory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedparity.cli.work import at_work, console, introduce, leave, progress, slug
from fedparity.errors import InputError

if TYPE_CHECKING:
    from fedparity.imports import Allowed
    from fedparity.records.result import Result
    from fedparity.run.experiment import Experiment

FILE = "comparison.yaml"
Settings = dict[str, Any]


def start(
    settings: Settings,
    algorithms: Sequence[str],
    directory: Path,
    data_dir: Path | None,
    allowed: Allowed,
    track: tuple[str, ...] = (),
) -> None:
    """Run all algorithms and compare them; everything is checked before the first one runs."""
    from fedparity.records.rundir import RunDir
    from fedparity.run.given import is_file

    settings = weighed(settings, algorithms, allowed)
    experiments = _experiments(settings, algorithms, data_dir, allowed)
    recipe = next(iter(experiments.values())).federation.recipe
    if recipe is not None and "table" in recipe:  # with the digest of what was read
        settings = {**settings, "data": dict(recipe)}
    if (directory / FILE).exists():
        raise InputError(
            f"{directory} already holds a comparison: resume it with 'fedparity resume "
            f"{directory}', or choose another directory"
        )
    RunDir(directory).require_unused()
    with _held(directory, algorithms):
        kept = dict(settings)
        if is_file(kept.get("lstar")):  # to be found from wherever the comparison is resumed
            kept["lstar"] = str(Path(kept["lstar"]).resolve())
        _write(directory, algorithms, kept)
        _go(experiments, directory, track)


def resume(
    directory: Path,
    rounds: int | None,
    data_dir: Path | None,
    allowed: Allowed,
    track: tuple[str, ...] = (),
) -> None:
    """Go on with a comparison: finished runs are kept, others go on or begin."""
    from fedparity.records.checksums import Checksums
    from fedparity.records.rundir import parse_yaml
    from fedparity.records.settings import with_tables

    file = directory / FILE
    settings = parse_yaml(Checksums(directory).read(file), file)
    settings = with_tables(settings, directory, data_dir)
    algorithms = settings.pop("algorithms", None)
    if not isinstance(algorithms, list):
        raise InputError(f"{file} names no algorithms")
    chosen = [str(text) for text in algorithms]
    if rounds is not None:
        settings["rounds"] = rounds
    experiments = _experiments(settings, chosen, data_dir, allowed)
    with _held(directory, chosen):
        if rounds is not None:
            _write(directory, chosen, settings)
        _go(experiments, directory, track)


def _write(directory: Path, algorithms: Sequence[str], settings: Settings) -> None:
    import yaml

    from fedparity.records.checksums import Checksums

    kept = {"algorithms": list(algorithms), **settings}
    with Checksums(directory).placing(directory / FILE) as beside:
        text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
        beside.write_text(text, encoding="utf-8")


def _held(directory: Path, algorithms: Sequence[str]) -> AbstractContextManager[None]:
    """Hold the whole comparison: between two of its runs, none of its directories is locked."""
    from fedparity.records.rundir import RunDir

    return RunDir(directory).held(f"a comparison of {', '.join(algorithms)}")


def weighed(settings: Settings, algorithms: Sequence[str], allowed: Allowed) -> Settings:
    """Return the settings with one weighting for all: that of methods that have their own.

    A uniform method beside a FedAvg by size would differ in two things at once. Settings that name
    a weighting are kept; methods that cannot follow it are told of in the report.
    """
    from fedparity.recipes import read

    if settings.get("weighting") is not None:
        return settings
    own = {found for text in algorithms if (found := read(text, allowed).own_weights)}
    if not own:
        return settings
    return {**settings, "weighting": "uniform" if "uniform" in own else "size"}


def _experiments(
    settings: Settings, algorithms: Sequence[str], data_dir: Path | None, allowed: Allowed
) -> dict[str, Experiment]:
    from fedparity.records.settings import federation_of
    from fedparity.run.file import experiment

    names = [slug(text) for text in algorithms]
    for text, name in zip(algorithms, names, strict=True):
        if names.count(name) > 1:
            raise InputError(f"'{text}' stands twice among the algorithms")
    federation = federation_of(settings, data_dir, allowed)
    return {
        text: experiment({**settings, "algorithm": text}, federation=federation, allowed=allowed)
        for text in algorithms
    }


def _go(experiments: dict[str, Experiment], directory: Path, track: tuple[str, ...]) -> None:
    from fedparity.reports.html import page, write_page
    from fedparity.reports.tables import show

    out = console()
    first, *others = experiments.values()
    introduce(first, out, *others)
    results: dict[str, Result] = {}
    with at_work():
        for text, experiment in experiments.items():
            results[text] = _one(experiment, directory / slug(text), directory, track)
    plain = [text for text, made in experiments.items() if not made.setup.algorithm.parts]
    federated = [text for text, result in results.items() if not result.alone]
    baseline = next(iter([*plain, *federated, *results]))
    out.print()
    show(results, out, baseline)
    if len({result.rounds for result in results.values()}) > 1:
        told = ", ".join(f"{text} {result.rounds}" for text, result in results.items())
        out.print(f"The runs ended after unequal numbers of rounds: {told}.", markup=False)
    write_page(directory / "report.html", page(results, baseline))
    out.print(f"\nResults in {directory}; open {directory / 'report.html'}", markup=False)
    leave(results.values())


def _one(experiment: Experiment, folder: Path, directory: Path, track: tuple[str, ...]) -> Result:
    from fedparity.records.result import Result
    from fedparity.records.rundir import RunDir

    run = RunDir(folder)
    if run.clients.exists() and run.settings().get("rounds") == experiment.rounds:
        return Result.load(folder)
    try:
        with progress() as watch:
            if run.experiment.exists():
                return experiment.resume(folder, watch, track)
            return experiment.run(folder, watch, track=track)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: fedparity resume {directory}") from None
