"""A small line chart as inline SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 24, 10, 34
COLOURS = ("#2563a8", "#c2572b", "#2f855a", "#7b4fa3", "#a3372f", "#6b7280", "#0f766e", "#9a6b00")
"""Told apart also by readers who confuse red and green; lines repeat them after eight."""


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False
    title: str = ""


def chart(lines: Sequence[Line], x_label: str, y_label: str, log: bool = False) -> str:
    """Return the lines as an SVG element with axes; numbers that are not finite are left out.

    ``log`` makes both axes logarithmic; all numbers must then be above zero.
    """
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True)]
    seen = [(x, y) for x, y in points if math.isfinite(y)]
    if not seen:
        return ""
    xs, ys = zip(*seen, strict=True)
    marks = decades if log else ticks
    across, up = marks(min(xs), max(xs)), marks(min(ys), max(ys))
    place = _Frame(min(xs), max(xs), min(up[0], min(ys)), max(up[-1], max(ys)), log)
    grid = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place.y(v):.1f}" y2="{place.y(v):.1f}" '
        f'class="grid"/><text x="{LEFT - 6}" y="{place.y(v) + 4:.1f}" text-anchor="end">{v:g}'
        "</text>"
        for v in up
    ]
    grid += [
        f'<text x="{place.x(v):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{v:g}</text>'
        for v in across
        if min(xs) <= v <= max(xs)
    ]
    labels = (
        f'<text x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">'
        f'{html.escape(x_label)}</text><text transform="translate(11 {HEIGHT / 2:.0f}) rotate(-90)"'
        f' text-anchor="middle">{html.escape(y_label)}</text>'
    )
    drawn = "".join(_polyline(line, place) for line in lines)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(y_label)} over '
        f'{html.escape(x_label)}">{"".join(grid)}{labels}{drawn}</svg>'
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers that cover a range.

    >>> ticks(0, 500)
    [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    """
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    count = range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    return [float(np.round(k * step, 12)) for k in count]


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten that cover a range above zero.

    >>> decades(3, 2000)
    [1.0, 10.0, 100.0, 1000.0, 10000.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    x0: float
    x1: float
    y0: float
    y1: float
    log: bool = False

    def x(self, value: float) -> float:
        return LEFT + self._share(value, self.x0, self.x1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self._share(value, self.y0, self.y1) * (HEIGHT - TOP - BOTTOM)

    def _share(self, value: float, low: float, high: float) -> float:
        if high <= low:
            return 0.5
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def _polyline(line: Line, place: _Frame) -> str:
    points = " ".join(
        f"{place.x(x):.1f},{place.y(y):.1f}"
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(y)
    )
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}>'
        f"<title>{html.escape(line.title)}</title></polyline>"
    )
