"""The report of a run, or of several beside each other, as one self-contained page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedparity.certainty import FEW
from fedparity.metrics.groups import RESAMPLES
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir
from fedparity.reports import numbers, unseen
from fedparity.reports.findings import (
    cautions,
    divergences,
    headlines,
    levelling,
    privacy,
    weights,
)
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
from fedparity.reports.svg import COLOURS, Line, chart

MOST = 200
"""Clients in the table; of a larger federation the worst and the best."""
MOST_CELLS = 100
"""Groups of clients, times metrics, whose bootstrap intervals the page shows: they take time."""
OF_ONE = (
    *("algorithm", "record.written_as", "record.weights", "record.softens"),
    *("record.diverged", "record.told", "record.kept_round"),
    *("record.privacy", "record.stopped"),
)
"""Settings and records that are not of all runs of a comparison alike."""
HIGHEST = 3
"""Times the loss before the first round up to which losses of a run that diverged are drawn."""
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --rule: #e3e7ee;
  --paper: #fff; --bar: #9bbce0; --gain: #6fb58d; --pay: #e0a08a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b2; --rule: #333b48;
  --paper: #14181f; --bar: #3f6a9c; --gain: #3d7d59; --pay: #a35a42; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about, p.note, figcaption { color: var(--soft); } p.note { font-size: .85rem; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
th[colspan] { text-align: left; } .group { border-left: 1px solid var(--rule); }
td.best { font-weight: 700; } .worst { font-weight: 700; color: #c0392b; }
td.text { text-align: left; white-space: normal; }
.track { display: inline-block; position: relative; width: 4rem; height: .7rem; margin-left: .5rem;
  border-bottom: 1px solid var(--rule); } .track i { position: absolute; top: 0; bottom: 0; }
i.acc { background: var(--bar); left: 0; } i.gain { background: var(--gain); }
i.pay { background: var(--pay); }
figure { margin: 0; } svg { width: 100%; max-width: 46rem; height: auto; }
svg text { fill: var(--soft); font-size: 11px; } svg .grid { stroke: var(--rule); }
span.key { display: inline-block; width: 1.2rem; border-top: 3px solid;
  margin: 0 .3rem .2rem 1rem; }
"""


def write(result: Result) -> None:
    """Write ``report.html`` of a run into its directory."""
    if result.path is not None:
        text = page({str(result.settings["record"]["written_as"]): result})
        write_page(RunDir(result.path).report, text)


def write_page(file: Path, text: str) -> None:
    """Write a page beside and rename it."""
    beside = file.with_name(file.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def page(results: Results, baseline: str | None = None) -> str:
    """Return the page: findings, one row an algorithm, curves, one row a client, settings."""
    title = ", ".join(results)
    first = next(iter(results.values()))
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="about">{escape(_about(first))}</p>',
        *_findings(results, baseline),
        "<h2>All clients together</h2>",
        *_algorithms(results),
        *_curves(results),
        "<h2>Client by client</h2>",
        *_clients(results),
        *_groups(results),
        *_unseen(results),
        "<h2>Settings</h2>",
        *_settings(first.settings, comparing=len(results) > 1),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - fedparity</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _about(result: Result) -> str:
    settings = result.settings
    data = settings.get("data", {})
    named = f"{data['dataset']}, {data['partition']}" if "dataset" in data else ""
    dealt = named or str(data.get("table", "your own data"))
    model = settings.get("model", "a model of your own")
    return f"{len(result.clients)} clients of {dealt}; {model}; {result.rounds} rounds"


def _findings(results: Results, baseline: str | None) -> Iterator[str]:
    for sentence in divergences(results):
        yield f'<p class="worst">{escape(sentence)}</p>'
    if len(results) == 1:
        sentences = headlines(next(iter(results.values())))
    else:
        sentences = cautions(results)
        if baseline is not None:
            sentences = [levelling(results, baseline), *sentences]
    sentences = [*sentences, *unseen.sentences(results), *privacy(results)]
    yield from (f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _algorithms(results: Results) -> Iterator[str]:
    table = numbers.summaries(results)
    heads = (escape(numbers.headline(column)).replace("\n", "<br>") for column in table.columns)
    above = "".join(f"<th>{head}</th>" for head in heads)
    yield f'<div class="wide"><table><thead><tr><th>algorithm</th>{above}</tr></thead><tbody>'
    for name in table.index:
        cells = (numbers.cell(table[column], name, results) for column in table.columns)
        row = "".join(f"<td{_class('best', best)}>{text}</td>" for text, best in cells)
        yield f"<tr><td>{_label(str(name), results)}</td>{row}</tr>"
    yield "</tbody></table></div>"
    if told := weights(results):
        yield f"<p>{escape(told)}</p>"
    mark = "Bold: the best of the column. " if len(results) > 1 else ""
    yield f'<p class="note">{escape(mark + numbers.definitions(table, results))}</p>'


def _curves(results: Results) -> Iterator[str]:
    lines: list[Line] = []
    keys, metric, cut = [], "accuracy", ""
    for place, (name, result) in enumerate(results.items()):
        colour = COLOURS[place % len(COLOURS)]
        rounds, mean, worst, metric = _course(result.history)
        if result.diverged and metric == "loss":
            highest = HIGHEST * mean[0]
            mean, worst = _below(mean, highest), _below(worst, highest)
            cut = f"; losses of runs that diverged are drawn up to {HIGHEST} times the first"
        lines.append(Line(rounds, mean, colour, title=f"{name}: mean over clients"))
        lines.append(Line(rounds, worst, colour, dashed=True, title=f"{name}: worst client"))
        shown = escape(numbers.label(name, result))
        keys.append(f'<span class="key" style="color:{colour}"></span>{shown}')
    drawn = chart(lines, "round", "accuracy, %" if metric == "accuracy" else "loss")
    if drawn:
        yield f"<h2>{metric.capitalize()} over rounds</h2>"
        yield (
            f"<figure>{drawn}<figcaption>{''.join(keys)} &nbsp; solid: mean over clients; dashed: "
            f"worst client{cut}</figcaption></figure>"
        )


def _below(values: Sequence[float], highest: float) -> Sequence[float]:
    """Return the values with NaN in place of those too high to be drawn beside others."""
    return [value if value <= highest else math.nan for value in values]


def _course(
    history: pd.DataFrame,
) -> tuple[Sequence[float], Sequence[float], Sequence[float], str]:
    """Return rounds, mean and worst over clients, of the model that clients would really use."""
    split = "test" if (history["split"] == "test").any() else "validation"
    rows = history[history["split"] == split]
    if (rows["model"] == "personal").any():
        rows = rows[rows["model"] == "personal"]
    metric = "accuracy" if (rows["metric"] == "accuracy").any() else "loss"
    by_round = rows[rows["metric"] == metric].groupby("round")["value"]
    mean, worst = by_round.mean(), by_round.min() if metric == "accuracy" else by_round.max()
    scale = 100 if metric == "accuracy" else 1
    return [*mean.index], [*(scale * mean)], [*(scale * worst)], metric


def _clients(results: Results) -> Iterator[str]:
    frames = frames_of(results)
    first = next(iter(frames.values()))
    gaps, accuracy = has_gaps(frames), has_accuracy(frames)
    metrics, told = numbers.metrics_of(frames), numbers.told(frames)
    columns = (
        ["accuracy, %"] * accuracy
        + ["loss"]
        + ["gap"] * gaps
        + ["95 %", "joining"] * told
        + metrics
    )
    beside = [each for each in numbers.BESIDE if numbers.has(frames, each[0])]
    above = "".join(
        f'<th colspan="{len(columns)}" class="group">{_label(name, results)}</th>'
        for name in frames
    )
    heads = ["client", "train", "validation", "test", *["L*"] * gaps]
    heads += [heading.replace("\n", "<br>") for _, heading, _, _ in beside]
    below = "".join(f"<th>{head}</th>" for head in [*heads, *columns * len(frames)])
    yield f'<div class="wide"><table><thead><tr><th colspan="{len(heads)}"></th>{above}</tr>'
    yield f"<tr>{below}</tr></thead><tbody>"
    tables = [numbers.by_name(frame) for frame in frames.values()]
    worst = [numbers.marked(frame) for frame in frames.values()]
    widest = _widest(results) if gaps else 1.0
    order = numbers.chosen(first, MOST, MOST // 2, MOST // 2)
    for client in order:
        row = tables[0][client]
        few = " ?" if row["n_test"] < FEW else ""
        cells = [f"<td>{escape(client)}</td>", f"<td>{row['n_train']}</td>"]
        cells += [f"<td>{row['n_validation']}</td>", f"<td>{row['n_test']}{few}</td>"]
        if gaps:
            lstar = number(row["test_lstar"], ".3f")
            cells.append(f"<td>{lstar} {numbers.lstar_marks(row)}</td>")
        for column, _, form, factor in beside:
            cells.append(f"<td>{number(factor * row[column], form)}</td>")
        for table, marked in zip(tables, worst, strict=True):
            cells += _client_cells(table[client], marked, widest, accuracy, gaps)
            cells += _joining(table[client]) if told else ()
            cells += [f"<td>{number(table[client][f'test_{m}'], '.3f')}</td>" for m in metrics]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    cut = ""
    if len(order) < len(first):
        cut = f"The worst and the best {MOST // 2} of {len(first)} clients. "
    yield f'<p class="note">{escape(cut + _definitions(frames))}</p>'


def _unseen(results: Results) -> Iterator[str]:
    """Yield a table of the clients that never trained, where there are any."""
    if (table := unseen.shown(results)) is None:
        return
    heads = (escape(head).replace("\n", "<br>") for head in ["client", *table.heads])
    above = "".join(f"<th>{head}</th>" for head in heads)
    yield "<h2>Clients never seen in training</h2>"
    yield f'<div class="wide"><table><thead><tr>{above}</tr></thead><tbody>'
    for name, *cells in zip(table.names, *table.cells, strict=True):
        row = "".join(f"<td>{escape(cell)}</td>" for cell in [name, *cells])
        yield f"<tr>{row}</tr>"
    yield "</tbody></table></div>"
    yield '<p class="note">On test examples, at the shared final model.</p>'


def _groups(results: Results) -> Iterator[str]:
    """Yield a table of groups inside clients for each kind of group of a run."""
    for name, result in results.items():
        for kind in result.groups:
            yield f"<h2>Clients by {escape(kind)}{escape(f': {name}') * (len(results) > 1)}</h2>"
            cells = len(result.by_group(kind, metrics=(), resamples=0))
            light = cells * len(result.frame.metrics) <= MOST_CELLS
            table = result.by_group(kind, resamples=RESAMPLES if light else 0)
            yield from _by_group(table, kind)


def _by_group(table: pd.DataFrame, kind: str) -> Iterator[str]:
    shown = [str(c)[:-4] for c in table if str(c).endswith("_low")]
    heads = "".join(f"<th>{escape(h)}</th>" for h in ("client", kind, "examples"))
    heads += "".join(f"<th>{escape(h)}</th><th>95 %</th>" for h in shown)
    yield f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in table.head(MOST).to_dict("records"):
        few = " ?" if row["n"] < FEW else ""
        cells = [f"<td>{escape(str(row[c]))}</td>" for c in ("client", kind)]
        cells.append(f"<td>{row['n']}{few}</td>")
        for what in shown:
            low, high = (number(row[f"{what}_{end}"], ".3f") for end in ("low", "high"))
            between = "-" if low == "-" else f"{low} to {high}"
            cells.append(f"<td>{number(row[what], '.3f')}</td><td>{between}</td>")
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    cut = f"The first {MOST} of {len(table)} rows. " if len(table) > MOST else ""
    yield (
        f'<p class="note">{cut}On test examples, with 95 % intervals of each number by itself. ?: '
        f"fewer than {FEW} examples.</p>"
    )


def _client_cells(
    row: Row, marked: Marked, widest: float, accuracy: bool, gaps: bool
) -> Iterator[str]:
    low, large = row["client"] in marked.low, row["client"] in marked.gap
    if accuracy:
        value = 100 * row["test_accuracy"]
        bar = "" if math.isnan(value) else f'<i class="acc" style="width:{value:.0f}%"></i>'
        text = number(value, ".1f") + _no_better(row, marked)
        yield _barred(text, bar, low)
    loss = number(row["test_loss"], ".3f") + ("" if accuracy else _no_better(row, marked))
    yield f"<td{_class('worst', low and not accuracy)}>{loss}</td>"
    if gaps:
        gap = row["test_gap"]
        yield _barred(number(gap, "+.3f"), "" if math.isnan(gap) else _gap_bar(gap / widest), large)


def _joining(row: Row) -> Iterator[str]:
    """Yield the interval of a client's gap, and the word on whether it gains."""
    low, high = (number(row.get(f"gap_{end}", math.nan), "+.3f") for end in ("low", "high"))
    yield f"<td>{'-' if low == '-' else f'{low} to {high}'}</td>"
    yield f'<td class="text">{row.get("verdict", "-")}</td>'


def _no_better(row: Row, marked: Marked) -> str:
    return " \u2264" if row["client"] in marked.base else ""


def _barred(text: str, bar: str, worst: bool) -> str:
    return f'<td{_class("worst", worst)}>{text}<span class="track">{bar}</span></td>'


def _gap_bar(share: float) -> str:
    """Return a bar from the middle: to the left where the client gains, to the right where not."""
    width = 50 * min(abs(share), 1)
    left, kind = (50 - width, "gain") if share < 0 else (50, "pay")
    return f'<i class="{kind}" style="left:{left:.0f}%;width:{width:.0f}%"></i>'


def _widest(results: Results) -> float:
    """Return the largest gap, for the bars; those of a run that diverged may go beyond."""
    sound = [result for result in results.values() if not result.diverged]
    gaps = pd.concat(
        [result.frame.by_client["test_gap"].abs() for result in sound or results.values()]
    )
    return max(1e-12, float(gaps[np.isfinite(gaps)].max()))


def _definitions(frames: Frames) -> str:
    what = "accuracy" if has_accuracy(frames) else "loss"
    told = f"Red: the worst tenth by {what}. ?: fewer than {FEW} test examples."
    if has_gaps(frames):
        told += (
            f" L*: best loss the client reaches alone. Gap: loss minus L*{sign(frames)}; red: the "
            "largest."
        )
        told += " 95 %: of the gap, client by client." * numbers.told(frames)
        told = " ".join([told, *numbers.joining(frames, marks=False)])
    told = " ".join([told, *numbers.beside(frames)])
    return told + " \u2264: no better than base." * numbers.no_better_anywhere(frames)


def _settings(settings: Mapping[str, Any], comparing: bool) -> Iterator[str]:
    yield "<details><summary>Everything needed to run it again</summary>"
    yield '<div class="wide"><table><tbody>'
    for name, value in _flat(settings):
        if not (comparing and name.startswith(OF_ONE)):
            yield f'<tr><td>{escape(name)}</td><td class="text">{escape(str(value))}</td></tr>'
    yield "</tbody></table></div></details>"


def _flat(settings: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{under}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{under}{name}", " ".join(str(item) for item in value)
        else:
            yield f"{under}{name}", "none" if value is None else value


def _label(name: str, results: Results) -> str:
    """Return the name of a run, marked if it diverged."""
    shown = escape(numbers.label(name, results[name]))
    return f'<span class="worst">{shown}</span>' if results[name].diverged else shown


def _class(name: str, given: bool) -> str:
    return f' class="{name}"' if given else ""
