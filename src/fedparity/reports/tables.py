"""Tables in the terminal: one row a client, one row an algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedparity.reports import numbers
from fedparity.reports.findings import cautions, divergences, levelling, privacy, weights
from fedparity.reports.numbers import (
    FEW,
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
BESIDE = 25
"""Room that examples and L* take in a row, beside the name of the client."""
CELL = 22
"""Room of one algorithm in a row: accuracy, loss, gap and marks."""
WIDEST = 24
"""Room of a name before it is folded."""
MARKS = {"low": "▼", "gap": "▲", "few": "?"}
ASCII = {"low": "v", "gap": "^", "few": "?"}


def show(results: Results, console: Console, baseline: str | None = None) -> None:
    """Print both tables, and the sentence on levelling down where there is a baseline."""
    show_clients(results, console)
    console.print()
    show_algorithms(results, console)
    for line in divergences(results):
        console.print()
        console.print(escape(line), style="bold red", highlight=False)
    for line in privacy(results):
        console.print()
        console.print(escape(line), highlight=False)
    if baseline is not None and len(results) > 1:
        console.print()
        console.print(escape(levelling(results, baseline)), highlight=False)


def show_clients(results: Results, console: Console) -> None:
    """Print one row a client; algorithms stand side by side as far as there is room."""
    frames = {numbers.label(n, results[n]): f for n, f in frames_of(results).items()}
    names = list(frames)
    first = frames[names[0]]
    rows = numbers.chosen(first, MANY, WORST, BEST)
    room = console.width - BESIDE - min(WIDEST, max(len(client) for client in rows))
    cell = min(WIDEST, max(CELL, *(len(name) for name in names)))
    together = max(1, (room + 1) // (cell + 2))
    for start in range(0, len(names), together):
        block = {name: frames[name] for name in names[start : start + together]}
        console.print(_clients_table(block, rows, _marks(console)))
        console.print()
    lines = [_definition(frames, _marks(console)), *cautions(results)]
    if len(rows) < len(first):
        lines.insert(
            0,
            f"{len(first) - len(rows)} more clients are between these, the {WORST} worst and the "
            f"{BEST} best under {names[0]}.",
        )
    for line in lines:
        console.print(escape(line), style="dim", highlight=False)


def show_algorithms(results: Results, console: Console) -> None:
    """Print one row an algorithm, the best value of each column marked."""
    table = numbers.summaries(results)
    view = _plain_table()
    view.add_column("\nalgorithm", overflow="fold")
    for column in table.columns:
        view.add_column(numbers.headline(column), justify="right")
    for name in table.index:
        cells = [numbers.cell(table[column], name, results) for column in table.columns]
        shown = numbers.label(str(name), results[str(name)])
        view.add_row(escape(shown), *(_summary_cell(cell) for cell in cells))
    console.print(view)
    console.print()
    mark = "* best of the column. " if len(results) > 1 else ""
    for line in filter(None, (weights(results), mark + numbers.definitions(table, results))):
        console.print(escape(line), style="dim", highlight=False)


def _summary_cell(cell: numbers.Cell) -> Text:
    return Text(f"{cell.text}*", style="bold green") if cell.best else Text(f"{cell.text} ")


def _clients_table(frames: Frames, rows: list[str], marks: Mapping[str, str]) -> Table:
    view = _plain_table()
    view.add_column("\nclient", overflow="fold", max_width=WIDEST)
    view.add_column("examples\ntrain/val/test", justify="right", no_wrap=True)
    gaps = has_gaps(frames)
    if gaps:
        view.add_column("\nL*", justify="right", no_wrap=True)
    heading = "acc %   loss" if has_accuracy(frames) else "        loss"
    for name in frames:
        view.add_column(f"{escape(name)}\n{heading}{'     gap' * gaps}", max_width=WIDEST)
    tables = [numbers.by_name(frame) for frame in frames.values()]
    worst = [numbers.marked(frame) for frame in frames.values()]
    widest = max(len(numbers.lstar_marks(tables[0][client])) for client in rows)
    for client in rows:
        about = tables[0][client]
        few = marks["few"] if about["n_test"] < FEW else " "
        sizes = "/".join(str(about[f"n_{s}"]) for s in ("train", "validation", "test"))
        cells: list[str | Text] = [escape(client), Text(f"{sizes}{few}")]
        if gaps:
            lstar = number(about["test_lstar"], ".3f")
            cells.append(Text(f"{lstar}{numbers.lstar_marks(about):{widest}}"))
        cells += [
            _client_cell(table[client], marked, marks, gaps)
            for table, marked in zip(tables, worst, strict=True)
        ]
        view.add_row(*cells)
    return view


def _client_cell(row: Row, worst: Marked, marks: Mapping[str, str], gaps: bool) -> Text:
    cell = Text(no_wrap=True)
    accuracy = 100 * row.get("test_accuracy", math.nan)
    low, large = row["client"] in worst.low, row["client"] in worst.gap
    cell.append(f"{number(accuracy, '.1f'):>5}", style="bold red" if low else "")
    cell.append(marks["low"] if low else " ", style="bold red")
    cell.append(f"{number(row['test_loss'], '.3f'):>6}")
    if gaps:
        style = "bold red" if large else "green" if row["test_gap"] < 0 else ""
        cell.append(f"{number(row['test_gap'], '+.3f'):>8}", style=style)
        cell.append(marks["gap"] if large else " ", style="bold red")
    return cell


def _definition(frames: Frames, marks: Mapping[str, str]) -> str:
    what = "accuracy" if has_accuracy(frames) else "loss"
    lines = [f"acc %, loss: on the client's test examples; {marks['low']} worst tenth by {what}."]
    if has_gaps(frames):
        lines.append(
            f"L*: best loss the client reaches alone. gap: loss minus L*{sign(frames)}; "
            f"{marks['gap']} the largest."
        )
    if any((frame.by_client["n_test"] < FEW).any() for frame in frames.values()):
        lines.append(f"{marks['few']} fewer than {FEW} test examples.")
    return " ".join(lines)


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))


def _marks(console: Console) -> Mapping[str, str]:
    return ASCII if console.options.ascii_only else MARKS
