"""What a measurement says: a table, bars it should reach, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Bar:
    """A number that should be at most, or at least, a limit."""

    claim: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = "x"

    @property
    def passed(self) -> bool:
        """Whether the bar is reached; a number that could not be measured reaches none."""
        if self.at_least:
            return self.value >= self.limit
        return self.value <= self.limit

    def cells(self) -> tuple[str, str, str, str]:
        """Return claim, measured, wanted and the verdict."""
        sign = "≥" if self.at_least else "≤"
        verdict = "pass" if self.passed else "FAIL"
        wanted = f"{sign} {self.limit:g}{self.unit}"
        return self.claim, f"{number(self.value)}{self.unit}", wanted, verdict


@dataclass
class Section:
    """A measurement with its table and its bars."""

    title: str
    text: str
    header: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self, out: Console) -> None:
        """Print table, notes and bars."""
        out.print(_table(self.title, self.header, self.rows))
        for note in self.notes:
            out.print(note, markup=False, style="dim")
        for bar in self.bars:
            claim, measured, wanted, verdict = bar.cells()
            style = "green" if bar.passed else "red"
            out.print(f"{verdict}  {claim}: {measured} (bar {wanted})", style=style, markup=False)
        out.print()

    def markdown(self) -> str:
        """Return the section as Markdown, without its bars."""
        parts = [f"## {self.title}", self.text, markdown_table(self.header, self.rows), *self.notes]
        return "\n\n".join(part for part in parts if part)


def bars_markdown(sections: Sequence[Section]) -> str:
    """Return all bars as one table."""
    bars = [bar for section in sections for bar in section.bars]
    rows = [bar.cells() for bar in bars]
    return markdown_table(("bar", "measured", "wanted", ""), rows)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def number(value: float) -> str:
    """Return a number with three digits that count.

    >>> number(2.345), number(42.19), number(3251.7), number(0.0123)
    ('2.35', '42.2', '3252', '0.0123')
    """
    if value != value:
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(header):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table
