"""What the commands share: a place for results, progress, warnings and the last words."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    from fedparity.records.result import Result
    from fedparity.reports.progress import Bar, Lines
    from fedparity.run.experiment import Experiment

RUNS = Path("runs")
"""Where results go when no directory is named."""


class PlainConsole(Console):
    """A console on which names out of files cannot move the cursor or change the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Return what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


def console() -> Console:
    """Return the console for results."""
    return PlainConsole(highlight=False)


def plain(text: str) -> str:
    """Return a text with ``?`` for each character that cannot be seen, but for ends of lines.

    >>> plain("a" + chr(27) + "[2Jb")
    'a?[2Jb'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def slug(text: str) -> str:
    """Return a text as the name of a directory.

    >>> slug("eagle(lam=0.5)+prox(mu=0.1)")
    'eagle-lam0.5-prox-mu0.1'
    """
    words = re.sub(r"[^A-Za-z0-9._]+", "-", text.replace("=", ""))
    return words.strip("-.")[:100] or "run"


def free(path: Path) -> Path:
    """Return the path, or the first of ``path-2``, ``path-3``, ... that does not exist."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


@contextmanager
def warned() -> Iterator[None]:
    """Show each warning of a command once, in one line."""
    seen: set[str] = set()

    def show(message: Warning | str, *about: object, **more: object) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            _say(f"warning: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def at_work(directory: Path | None = None) -> Iterator[None]:
    """Keep warnings until progress is no longer shown; tell how to go on after Ctrl-C."""
    kept: list[Callable[[], None]] = []
    show = warnings.showwarning

    def keep(message: Warning | str, *about: Any, **more: Any) -> None:
        kept.append(lambda: show(message, *about, **more))

    with warnings.catch_warnings():
        warnings.showwarning = keep
        try:
            yield
        except KeyboardInterrupt as stop:
            _say(str(stop) or f"interrupted{_way_on(directory)}")
            raise typer.Exit(130) from None
        finally:
            for tell in kept:
                tell()


@contextmanager
def progress() -> Iterator[Bar | Lines]:
    """Show how one run goes."""
    from fedparity.reports.progress import watcher

    with closing(watcher()) as watch:
        yield watch


def introduce(experiment: Experiment, out: Console, *others: Experiment) -> None:
    """Say what is odd about the data, and in a line what is about to run, on which engine, why."""
    from fedparity.data.doctor import short

    for line in short(experiment.federation.check()):
        out.print(f"data: {line}", markup=False, soft_wrap=True)
    choice = experiment.choice
    out.print(
        f"{len(experiment.federation)} clients, {experiment.setup.layout.size:,} parameters, "
        f"{experiment.rounds} rounds; engine {choice.name}: {choice.reason}",
        style="dim",
        markup=False,
    )
    foreign = dict.fromkeys(path for each in (experiment, *others) for path in each.foreign)
    if foreign:
        told = f"imported: {', '.join(foreign)}"
        out.print(told, style="dim", markup=False, soft_wrap=True)
    most = experiment.cost_alone()
    if most is not None:
        out.print(
            f"first {most}, at most {most.rounds} rounds "
            f"({most.rounds * most.examples:,} examples)",
            style="dim",
            markup=False,
        )


def show_result(directory: Path) -> None:
    """Print the result of a finished run and where it is."""
    from fedparity.records.result import Result
    from fedparity.reports.tables import show

    result, out = Result.load(directory), console()
    out.print()
    show({str(result.settings["record"]["written_as"]): result}, out)
    for part, told in result.settings["record"].get("told", {}).items():
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in told.items())
        out.print(f"\n{part} at the end, on validation: {numbers}", markup=False)
    if cut := result.record.get("predictions"):
        out.print(f"\nPredictions are kept {cut}.", markup=False)
    out.print(f"\nResults in {directory}; open {directory / 'report.html'}", markup=False)
    leave([result])


def leave(results: Iterable[Result]) -> None:
    """End the command with code 1 if a run diverged; its results are written all the same."""
    if any(result.diverged for result in results):
        raise typer.Exit(1)


def _way_on(directory: Path | None) -> str:
    started = directory is not None and (directory / "experiment.yaml").exists()
    return f": fedparity resume {directory}" if started else ""


def _say(text: str) -> None:
    print(plain(f"fedparity: {text}"), file=sys.stderr)
