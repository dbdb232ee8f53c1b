"""Tables in the terminal: one row a client, one row an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedparity.certainty import FEW, GAINS
from fedparity.metrics import ClientFrame
from fedparity.reports import numbers, unseen
from fedparity.reports.findings import cautions, divergences, levelling, privacy, weights
from fedparity.reports.numbers import (
    Frames,
    Marked,
    Results,
    Row,
    frames_of,
    has_accuracy,
    has_gaps,
    number,
    sign,
)

MANY = 40
"""Clients up to which all are shown."""
WORST, BEST = 10, 5
"""Clients shown of a larger federation."""
WIDEST = 24
"""Room of a name before it is folded."""
BETWEEN = 2
"""Room between two columns."""
MARKS = {"low": "▼", "gap": "▲", "few": "?", "base": "≤"}
ASCII = {"low": "v", "gap": "^", "few": "?", "base": "="}
Cell = Callable[[Row, Marked, Mapping[str, str]], Text]
"""Writes a number of a client, marked."""


def show(results: Results, console: Console, baseline: str | None = None) -> None:
    """Print both tables, and the sentence on levelling down where there is a baseline."""
    show_clients(results, console)
    console.print()
    show_algorithms(results, console)
    for line in divergences(results):
        console.print()
        console.print(escape(line), style="bold red", highlight=False)
    show_unseen(results, console)
    for line in privacy(results):
        console.print()
        console.print(escape(line), highlight=False)
    if baseline is not None and len(results) > 1:
        console.print()
        console.print(escape(levelling(results, baseline)), highlight=False)


def show_clients(results: Results, console: Console) -> None:
    """Print one row a client; what does not fit beside it goes on in a further table."""
    frames = {numbers.label(n, results[n]): f for n, f in frames_of(results).items()}
    names, marks = list(frames), _marks(console)
    first = frames[names[0]]
    rows = numbers.chosen(first, MANY, WORST, BEST)
    room = console.width - _named("client", rows) - BETWEEN
    columns = [
        *_about_clients(first, rows, marks, has_gaps(frames)),
        *(c for n, f in frames.items() for c in _of_algorithm(n, f, frames, rows, marks, room)),
    ]
    _print_columns("client", rows, columns, console)
    lines = [_definition(frames, marks), *cautions(results)]
    if len(rows) < len(first):
        lines.insert(
            0,
            f"{len(first) - len(rows)} more clients are between these, the {WORST} worst and the "
            f"{BEST} best under {names[0]}.",
        )
    for line in lines:
        console.print(escape(line), style="dim", highlight=False)


def show_unseen(results: Results, console: Console) -> None:
    """Print what clients that never trained get, where there are any."""
    for line in unseen.sentences(results):
        console.print()
        console.print(escape(line), highlight=False)
    if (table := unseen.shown(results)) is not None:
        console.print()
        columns = [
            Column(head, [Text(cell) for cell in cells]).aligned()
            for head, cells in zip(table.heads, table.cells, strict=True)
        ]
        _print_columns("unseen client", table.names, columns, console)


def show_algorithms(results: Results, console: Console) -> None:
    """Print one row an algorithm, the best value of each column marked."""
    table = numbers.summaries(results)
    names = [str(name) for name in table.index]
    shown = [numbers.label(name, results[name]) for name in names]
    columns = [
        Column(
            numbers.headline(summary),
            [_summary_cell(numbers.cell(table[summary], name, results)) for name in names],
        ).aligned()
        for summary in table.columns
    ]
    _print_columns("algorithm", shown, columns, console)
    mark = "* best of the column. " if len(results) > 1 else ""
    for line in filter(None, (weights(results), mark + numbers.definitions(table, results))):
        console.print(escape(line), style="dim", highlight=False)


def _summary_cell(cell: numbers.Cell) -> Text:
    return Text(f"{cell.text}*", style="bold green") if cell.best else Text(f"{cell.text} ")


class Column(NamedTuple):
    """A column of a table, of which no line may be cut."""

    heading: str
    cells: list[Text]

    @property
    def width(self) -> int:
        """Letters of its longest line."""
        lines = [*self.heading.split("\n"), *(cell.plain for cell in self.cells)]
        return max(len(line) for line in lines)

    def aligned(self) -> Column:
        """Return the column with all lines as long as the longest, filled up on the left."""
        lines = (f"{line:>{self.width}}" for line in self.heading.split("\n"))
        return Column("\n".join(lines), [_right(cell, self.width) for cell in self.cells])


def _right(cell: Text, width: int) -> Text:
    return Text(" " * (width - len(cell.plain))).append_text(cell)


def _packed(columns: list[Column], room: int, between: int) -> list[list[Column]]:
    """Return the columns of table after table, in each as many as there is room for."""
    tables: list[list[Column]] = [[]]
    left = room
    for column in columns:
        needed = column.width + between
        if tables[-1] and needed > left:
            tables.append([])
            left = room
        tables[-1].append(column)
        left -= needed
    return tables


def _print_columns(heading: str, names: list[str], columns: list[Column], console: Console) -> None:
    """Print columns behind the names of the rows, in as many tables as it takes."""
    named = _named(heading, names)
    for some in _packed(columns, console.width - named, BETWEEN):
        view = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        view.add_column(f"\n{heading}", overflow="fold", width=named)
        for column in some:
            view.add_column(Text(column.heading), no_wrap=True)
        for place, name in enumerate(names):
            view.add_row(escape(name), *(column.cells[place] for column in some))
        console.print(view)
        console.print()


def _named(heading: str, names: list[str]) -> int:
    """Return the room of names, which are folded where they need more."""
    return min(WIDEST, max(len(text) for text in (heading, *names)))


def _about_clients(
    frame: ClientFrame, rows: list[str], marks: Mapping[str, str], gaps: bool
) -> list[Column]:
    """Return what is of the clients under any algorithm: examples, L*, base rate, alone."""
    table = numbers.by_name(frame)
    about = [table[client] for client in rows]
    sizes = [
        "/".join(str(row[f"n_{s}"]) for s in ("train", "validation", "test"))
        + (marks["few"] if row["n_test"] < FEW else " ")
        for row in about
    ]
    found = [Column("examples \ntrain/val/test ", [Text(size) for size in sizes]).aligned()]
    if gaps:
        widest = max(len(numbers.lstar_marks(row)) for row in about)
        cells = [
            f"{number(row['test_lstar'], '.3f')}{numbers.lstar_marks(row):{widest}}"
            for row in about
        ]
        found.append(Column("\nL*" + " " * widest, [Text(cell) for cell in cells]).aligned())
    for column, heading, form, scale in numbers.BESIDE:
        if numbers.has({"": frame}, column):
            cells = [number(scale * row[column], form) for row in about]
            found.append(Column(heading, [Text(cell) for cell in cells]).aligned())
    return found


def _of_algorithm(
    name: str,
    frame: ClientFrame,
    frames: Frames,
    rows: list[str],
    marks: Mapping[str, str],
    room: int,
) -> Iterator[Column]:
    """Yield what clients got of one algorithm, as many numbers in a column as there is room for."""
    table, marked = numbers.by_name(frame), numbers.marked(frame)
    parts = [
        Column(heading, [cell(table[client], marked, marks) for client in rows]).aligned()
        for heading, cell in _numbers_of(frames)
    ]
    for some in _packed(parts, room + 1, between=1):
        width = sum(part.width + 1 for part in some) - 1
        lines = [name[at : at + width] for at in range(0, len(name), width)]
        heading = "\n".join(f"{line:<{width}}" for line in lines)
        heading += "\n" + " ".join(part.heading for part in some)
        joint = Text(" ")
        cells = [joint.join(row) for row in zip(*(part.cells for part in some), strict=True)]
        yield Column(heading, cells)


def _numbers_of(frames: Frames) -> Iterator[tuple[str, Cell]]:
    """Yield the heading of each number that clients have of an algorithm, and how it is written."""
    accuracy = has_accuracy(frames)
    better = numbers.no_better_anywhere(frames)
    if accuracy:
        yield "acc %" + " " * (1 + better), partial(_accuracy, better=better)
    yield "loss" + " " * (better and not accuracy), partial(_loss, better=better and not accuracy)
    if has_gaps(frames):
        yield "gap ", _gap
    for metric in numbers.metrics_of(frames):
        yield metric, partial(_metric, column=f"test_{metric}")


def _accuracy(row: Row, worst: Marked, marks: Mapping[str, str], *, better: bool) -> Text:
    low = row["client"] in worst.low
    cell = Text(number(100 * row["test_accuracy"], ".1f"), style="bold red" if low else "")
    cell.append(marks["low"] if low else " ", style="bold red")
    return _based(cell, row, worst, marks) if better else cell


def _loss(row: Row, worst: Marked, marks: Mapping[str, str], *, better: bool) -> Text:
    cell = Text(number(row["test_loss"], ".3f"))
    return _based(cell, row, worst, marks) if better else cell


def _based(cell: Text, row: Row, worst: Marked, marks: Mapping[str, str]) -> Text:
    return cell.append(marks["base"] if row["client"] in worst.base else " ", style="bold red")


def _gap(row: Row, worst: Marked, marks: Mapping[str, str]) -> Text:
    large = row["client"] in worst.gap
    gains = row.get("verdict") == GAINS
    style = "bold red" if large else "green" if gains else ""
    cell = Text(number(row["test_gap"], "+.3f"), style=style)
    if "verdict" in row:
        cell.append(numbers.JOINING.get(row["verdict"], " "))
    return cell.append(marks["gap"] if large else " ", style="bold red")


def _metric(row: Row, worst: Marked, marks: Mapping[str, str], *, column: str) -> Text:
    return Text(number(row[column], ".3f"))


def _definition(frames: Frames, marks: Mapping[str, str]) -> str:
    what = "accuracy" if has_accuracy(frames) else "loss"
    lines = [f"acc %, loss: on the client's test examples; {marks['low']} worst tenth by {what}."]
    if has_gaps(frames):
        lines.append(
            f"L*: best loss the client reaches alone. gap: loss minus L*{sign(frames)}; "
            f"{marks['gap']} the largest."
        )
        lines += numbers.joining(frames, marks=True)
    lines += numbers.beside(frames)
    if numbers.no_better_anywhere(frames):
        lines.append(f"{marks['base']} no better than base.")
    if any((frame.by_client["n_test"] < FEW).any() for frame in frames.values()):
        lines.append(f"{marks['few']} fewer than {FEW} test examples.")
    return " ".join(lines)


def _marks(console: Console) -> Mapping[str, str]:
    return ASCII if console.options.ascii_only else MARKS
