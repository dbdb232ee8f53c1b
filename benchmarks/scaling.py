"""How a round grows: with the clients asked, with the population, with the parameters."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from contest import Contestant, Rounds, experiment, federation, turns
from plain import PlainLoop
from report import Section, number
from workloads import WORKLOADS

from fedparity.reports.svg import COLOURS, HEIGHT, WIDTH, Line, chart

COHORTS = (1, 3, 10, 30, 100, 300, 1000)
POPULATIONS = (100, 1_000, 10_000, 100_000)
HIDDEN = (2, 10, 50, 200, 800)
TITLE, LEGEND = 24, 22
"""Height of a chart's title and legend."""


@dataclass(frozen=True)
class Curve:
    """Times of several contestants over one thing that grows."""

    title: str
    x_label: str
    x: Sequence[float]
    times: dict[str, list[float]]


def measure(repeats: int) -> tuple[Section, str]:
    """Measure three curves; return them as a table and as a figure."""
    curves = [
        _curve(
            "Clients a round (linear 60-10, 10 steps of 10)", "clients a round", _cohorts(), repeats
        ),
        _curve("Population (linear 60-10, 50 clients a round)", "clients", _populations(), repeats),
        _curve("Parameters (784-h-h-10, 10 clients a round)", "parameters", _parameters(), repeats),
    ]
    section = Section(
        "Scaling",
        "![ms a round over clients a round, population and parameters](performance.svg)",
        ("what grows", "at", "auto, ms", "plain loop, ms"),
    )
    for curve in curves:
        for place, at in enumerate(curve.x):
            cells = (number(curve.times[name][place]) for name in ("auto", "plain loop"))
            section.rows.append((curve.x_label, f"{at:,.0f}", *cells))
    return section, figure(curves)


Entrants = Iterator[tuple[float, list[Contestant], Rounds]]


def _curve(title: str, x_label: str, entrants: Entrants, repeats: int) -> Curve:
    x: list[float] = []
    times: dict[str, list[float]] = {}
    for at, contestants, rounds in entrants:
        found = turns(contestants, repeats)
        rounds.close()
        x.append(at)
        for name in found:
            times.setdefault(name, []).append(found.median(name))
    return Curve(title, x_label, x, times)


def _pair(
    made: dict[str, object], at: float | None = None
) -> tuple[float, list[Contestant], Rounds]:
    first = experiment(**made)
    rounds = Rounds(first)
    plain = PlainLoop(experiment(**{**made, "data": first.federation}))
    at = float(first.setup.layout.size) if at is None else at
    return at, [Contestant("auto", rounds), Contestant("plain loop", plain)], rounds


def _cohorts() -> Entrants:
    workload = replace(WORKLOADS["lin"], clients=max(COHORTS), examples=100)
    data = federation(workload)
    for cohort in COHORTS:
        yield _pair({"workload": replace(workload, cohort=cohort), "data": data}, cohort)


def _populations() -> Entrants:
    for clients in POPULATIONS:
        yield _pair({"workload": replace(WORKLOADS["device"], clients=clients)}, clients)


def _parameters() -> Entrants:
    workload = replace(WORKLOADS["mlp"], clients=10)
    data = federation(workload)
    for hidden in HIDDEN:
        yield _pair({"workload": workload, "data": data, "model": f"mlp(hidden={hidden})"})


def figure(curves: Sequence[Curve]) -> str:
    """Return the curves one below the other, as a file of its own."""
    step = TITLE + LEGEND + HEIGHT + 16
    drawn = [_drawn(curve, place * step) for place, curve in enumerate(curves)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {step * len(curves)}">'
        "<style>text{font:12px sans-serif;fill:#444}.title{font-weight:bold}"
        ".grid{stroke:#ddd}</style>"
        f'<rect width="100%" height="100%" fill="white"/>{"".join(drawn)}</svg>\n'
    )


def _drawn(curve: Curve, top: float) -> str:
    colours = dict(zip(curve.times, COLOURS, strict=False))
    lines = [Line(curve.x, ms, colours[name], title=name) for name, ms in curve.times.items()]
    legend = "".join(
        f'<text x="{60 + 130 * place}" y="{top + TITLE + 16}" style="fill:{colour}">{name}</text>'
        for place, (name, colour) in enumerate(colours.items())
    )
    inner = chart(lines, curve.x_label, "ms a round", log=True)
    placed = inner.replace(
        "<svg ", f'<svg x="0" y="{top + TITLE + LEGEND}" width="{WIDTH}" height="{HEIGHT}" ', 1
    )
    title = f'<text class="title" x="8" y="{top + 18}">{html.escape(curve.title)}</text>'
    return f"{title}{legend}{placed}"
