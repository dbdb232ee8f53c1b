"""Which numbers a report shows, how they are written, and which of them are marked.

The tables in the terminal and on the page are two ways to draw what is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from fedparity.certainty import FEW, GAINS, PAYS, UNTOLD
from fedparity.metrics import SUMMARIES, ClientFrame, Direction, Summary
from fedparity.metrics.summaries import Column
from fedparity.records.divergence import RULE
from fedparity.records.result import Result

CAPPED, BY_TRAINING = "~", "t"
"""Marks of an L*: the client was still improving alone, or has no validation example."""
LARGE = 1000
"""A loss or gap from here on is written without a fraction, and later with a power of ten."""
COLUMNS = {
    "mean_accuracy": "mean\nacc %",
    "worst_accuracy": "worst\nclient",
    "worst10_accuracy": "worst\n10 %",
    "accuracy_variance": "acc\nvar",
    "mean_loss": "mean\nloss",
    "worst_loss": "worst\nloss",
    "gap_variance": "gap\nvar",
    "max_gap": "max\ngap",
    "min_gap": "min\ngap",
    "certainly_gain": "surely\ngain",
    "certainly_pay": "surely\npay",
}
"""The summaries that reports show, with their headings; of each further metric mean and worst."""


class Meant(NamedTuple):
    """What a number is that is no summary of a frame of clients."""

    definition: str
    better: Direction
    column: Column = "gap"


TOGETHER = "at 95 % for all clients of a run together"
CERTAIN = {
    "certainly_gain": Meant(f"clients that certainly gain from joining, {TOGETHER}", "higher"),
    "certainly_pay": Meant("clients that certainly pay", "lower"),
}
"""The summaries that need the losses of single examples."""
JOINING = {GAINS: "g", PAYS: "p"}
"""Marks of the gaps of clients of which it is certain."""
BESIDE = (
    ("test_base_accuracy", "base\nacc %", ".1f", 100),
    ("test_base_loss", "base\nloss", ".3f", 1),
    ("test_alone_accuracy", "alone\nacc %", ".1f", 100),
)
"""What stands beside the numbers of all algorithms: column, heading, format and factor."""
UNKEPT = "Who gains and pays cannot be told where no losses of single examples are kept"
Results = Mapping[str, Result]
"""Runs by the names under which they are shown."""
Frames = Mapping[str, ClientFrame]
Row = Mapping[Hashable, Any]
"""What a frame tells of one client."""


class Cell(NamedTuple):
    """A number as it is written, and whether it is the best of its column."""

    text: str
    best: bool


class Marked(NamedTuple):
    """Names of the clients to mark."""

    low: set[str]
    """The worst tenth by accuracy, or by loss where there is none."""
    gap: set[str]
    """The one with the largest loss gap."""
    base: set[str]
    """Those who are served no better than by a guess that looks at no input."""


def frames_of(results: Results) -> Frames:
    """Return the clients of each run."""
    return {name: with_verdicts(result) for name, result in results.items()}


def with_verdicts(result: Result) -> ClientFrame:
    """Return the clients of a run, with the intervals of their gaps where they are known."""
    frame, found = result.frame, result.verdicts
    if found.empty:
        return frame
    rows = frame.by_client.merge(found, on="client", how="left")
    rows["verdict"] = rows["verdict"].fillna(UNTOLD)
    return ClientFrame(rows, metrics=frame.metrics, alone=frame.alone)


def counted(frame: ClientFrame) -> dict[str, float]:
    """Return of how many clients it is certain that they gain, and that they pay."""
    if not told({"": frame}):
        return dict.fromkeys(CERTAIN, math.nan)
    verdicts = frame.by_client["verdict"]
    return {
        what: float((verdicts == verdict).sum())
        for what, verdict in zip(CERTAIN, JOINING, strict=True)
    }


def told(frames: Frames) -> bool:
    """Tell whether of some run there are verdicts on who gains and pays."""
    return any("verdict" in frame.by_client for frame in frames.values())


def summaries(results: Results) -> pd.DataFrame:
    """Return one row an algorithm: accuracies or else losses, and gaps where there are any."""
    frames = frames_of(results)
    hidden = {"mean_loss", "worst_loss"} if has_accuracy(frames) else set()
    if not has_gaps(frames):
        hidden |= {"gap_variance", "max_gap", "min_gap", *CERTAIN}
    rows = {n: {**frame.summary().to_dict(), **counted(frame)} for n, frame in frames.items()}
    table = pd.DataFrame(rows).T
    shown = [*COLUMNS, *(f"{what}_{m}" for m in metrics_of(frames) for what in ("mean", "worst"))]
    return table[[name for name in shown if name in table and name not in hidden]]


def cell(column: pd.Series[float], name: Hashable, results: Results) -> Cell:
    """Return one number of a column of :func:`summaries`."""
    value, what = column.to_dict()[name], str(column.name)
    rivals = column[[name for name, result in results.items() if rival(result, what)]]
    summary = _summary(what, results)
    best = rivals.max() if summary.better == "higher" else rivals.min()
    form = ".0f" if what in CERTAIN else ".1f" if summary.column == "accuracy" else ".3f"
    wins = name in rivals.index and bool(value == best) and rivals.nunique() > 1
    return Cell(number(value, form), wins)


def label(name: str, result: Result) -> str:
    """Return the name of a run as tables show it."""
    return f"{name} (diverged)" if result.diverged else name


def rival(result: Result, summary: str) -> bool:
    """Tell whether a run may have the best value of a summary.

    A model that diverged may serve all clients equally, which is no merit. The loss gaps of clients
    that train alone are to the best of that same training: no federation competes with them.
    """
    of_gaps = summary in CERTAIN or (summary in SUMMARIES and SUMMARIES[summary].column == "gap")
    return not result.diverged and not (result.alone and of_gaps)


def definitions(table: pd.DataFrame, results: Results) -> str:
    """Return what the columns of :func:`summaries` mean."""
    told = (f"{heading(c)}: {_summary(c, results).definition}" for c in table.columns)
    return " ".join([f"On test examples. {'; '.join(told)}.", *_reservations(table, results)])


def _reservations(table: pd.DataFrame, results: Results) -> Iterator[str]:
    """Yield why some runs have no number in a column, or cannot be the best of it."""
    if any(result.diverged for result in results.values()):
        yield f"{RULE}{'; never marked as best' * (len(results) > 1)}."
    alone = [name for name, result in results.items() if result.alone]
    if alone and "certainly_gain" in table:
        yield (
            f"In {', '.join(alone)} each client trains alone: nobody joins, and its gaps, to the "
            "best of that same training, are not compared."
        )
    frames = {n: f for n, f in frames_of(results).items() if not results[n].alone}
    if "certainly_gain" in table and not all(told({"": frame}) for frame in frames.values()):
        yield f"{UNKEPT}."


def heading(column: str) -> str:
    """Return the heading of a summary in one line."""
    return headline(column).replace("\n", " ")


def headline(column: str) -> str:
    """Return the heading of a summary, in lines."""
    return COLUMNS.get(column, column.replace("_", "\n"))


def metrics_of(frames: Frames) -> list[str]:
    """Return the metrics, beside loss and accuracy, that all runs have."""
    first, *others = frames.values()
    return [name for name in first.metrics if all(name in frame.metrics for frame in others)]


def _summary(name: str, results: Results) -> Summary | Meant:
    """Return what a summary of these runs is."""
    if name in CERTAIN:
        return CERTAIN[name]
    return next(iter(results.values())).frame.summaries[name]


def marked(frame: ClientFrame) -> Marked:
    """Return the clients of a run to mark."""
    tested = int((frame.by_client["n_test"] > 0).sum())
    low = frame.worst(max(1, math.floor(tested / 10 + 1e-9)))["client"]
    gap = frame.worst(1, by="gap")["client"] if has_gaps({"": frame}) else ()
    return Marked(set(low), set(gap), set(no_better(frame)))


def no_better(frame: ClientFrame) -> list[str]:
    """Return the clients that are served no better than by the base rate."""
    rows = frame.by_client
    if {"test_accuracy", "test_base_accuracy"} <= set(rows):
        worse = rows["test_accuracy"] <= rows["test_base_accuracy"]
    elif {"test_loss", "test_base_loss"} <= set(rows):
        worse = rows["test_loss"] >= rows["test_base_loss"]
    else:
        return []
    return [str(name) for name in rows["client"][worse]]


def no_better_anywhere(frames: Frames) -> bool:
    """Tell whether in some run some client is served no better than by the base rate."""
    return any(no_better(frame) for frame in frames.values())


def beside(frames: Frames) -> list[str]:
    """Return what the numbers beside those of the algorithms mean."""
    told = []
    if has(frames, "test_base_accuracy"):
        told.append("base: always the client's most frequent training class.")
    if has(frames, "test_base_loss"):
        told.append("base: always the mean of the client's training values.")
    if has(frames, "test_alone_accuracy"):
        told.append("alone: the model the client trains alone.")
    return told


def has(frames: Frames, column: str) -> bool:
    """Tell whether in all runs some client has such a number."""
    tables = [frame.by_client for frame in frames.values()]
    return all(column in table and bool(table[column].notna().any()) for table in tables)


def lstar_marks(row: Row) -> str:
    """Return the marks of a client's L*."""
    return CAPPED * bool(row.get("lstar_capped")) + BY_TRAINING * by_training(row)


def by_training(row: Row) -> bool:
    """Tell whether a client's gap, where a method goes by it, is on its training examples."""
    return row["n_validation"] == 0 and math.isnan(row.get("validation_lstar", 0.0))


def by_name(frame: ClientFrame) -> dict[str, Row]:
    """Return the rows of the clients by their names."""
    return {str(row["client"]): row for row in frame.by_client.to_dict("records")}


def chosen(frame: ClientFrame, many: int, worst: int, best: int) -> list[str]:
    """Return all clients, or of more than ``many`` the worst and the best, the worst first."""
    names = [str(name) for name in frame.by_client["client"]]
    if len(names) <= many:
        return names
    order = [str(name) for name in frame.worst(len(names))["client"]]
    return [*order[:worst], *order[-best:]]


def has_accuracy(frames: Frames) -> bool:
    """Tell whether all runs have accuracies."""
    return all("test_accuracy" in frame.by_client for frame in frames.values())


def has_gaps(frames: Frames) -> bool:
    """Tell whether in all runs some client has a loss gap."""
    return has(frames, "test_gap")


def joining(frames: Frames, marks: bool) -> list[str]:
    """Return what the words on joining mean, or the marks that stand for them."""
    if not told(frames):
        return []
    gains, pays = (f"{JOINING[word]} {word}" if marks else word for word in (GAINS, PAYS))
    other = "otherwise it" if marks else "it"
    return [f"{gains}, {pays} ({TOGETHER}); {other} {UNTOLD}, as of fewer than {FEW} examples."]


def sign(frames: Frames) -> str:
    """Return what a negative gap means, behind a comma; nothing where no client has joined."""
    if all(frame.alone for frame in frames.values()):
        return ""
    return ", negative where joining serves the client better"


def number(value: float, form: str) -> str:
    """Return a number in this format, a dash where there is none.

    >>> number(0.12345, ".3f"), number(float("nan"), ".3f")
    ('0.123', '-')
    >>> number(4690.2, ".3f"), number(4e29, "+.3f")  # no longer than others
    ('4690', '+4e+29')
    """
    if math.isnan(value):
        return "-"
    if abs(value) >= LARGE:
        form = form.replace(".3f", ".0f" if abs(value) < 100 * LARGE else ".0e")
    return format(value, form)
