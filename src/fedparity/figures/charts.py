"""The charts, each of a table that says what it shows.

Columns of these tables have fixed names; labels of runs and clients are values, never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedparity.certainty import GAINS, PAYS, UNTOLD, against, friedman, over_seeds
from fedparity.errors import InputError, unknown
from fedparity.figures.figure import Figure, altair
from fedparity.figures.labelled import Labelled, per_client, summaries
from fedparity.fronts import Frontier
from fedparity.metrics import Split
from fedparity.metrics.metric import direction

PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
"""Colours that are told apart without red and green (Okabe and Ito)."""
DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]
WIDTH, HEIGHT = 420, 260
ROW = 18
"""Height of a row of names."""
MANY = 60
"""Clients up to which each has a row with its name."""
Over = Literal["mean", "worst"]


def curves(
    runs: Sequence[Labelled], metric: str = "accuracy", over: Over = "mean", split: Split = "test"
) -> Figure:
    """Draw a metric over the rounds, mean over seeds, with the band of its 95 % t interval.

    ``over`` is what is taken over clients in each round: their mean, or the worst of them.
    """
    if over not in ("mean", "worst"):
        raise unknown("'over'", over, ["mean", "worst"])
    table = over_seeds(over_rounds(runs, metric, over, split))
    table = table.rename(columns={"metric": "round", "method": "label"})
    alt = altair()
    labels = list(dict.fromkeys(run.label for run in runs))
    base = alt.Chart(table).encode(
        x=alt.X("round:Q", title="round"), color=_colour(alt, labels, "label", stroked=True)
    )
    each = [DASHES[place % len(DASHES)] for place in range(len(labels))]
    dash = alt.StrokeDash("label:N", scale=alt.Scale(domain=labels, range=each), title=None)
    y = alt.Y("mean:Q", title=f"{over} {metric} of clients ({split})", scale=_free(alt))
    lines = base.mark_line().encode(y=y, strokeDash=dash)
    banded = alt.Chart(table.dropna(subset=["low"])).encode(
        x="round:Q", color=_colour(alt, labels, "label", stroked=True)
    )
    band = banded.mark_area(opacity=0.2, line=False).encode(y=alt.Y("low:Q"), y2="high:Q")
    return _figure(alt.layer(band, lines))


def over_rounds(runs: Sequence[Labelled], metric: str, over: Over, split: Split) -> pd.DataFrame:
    """Return a table of runs whose metrics are the rounds."""
    tables = []
    for run in runs:
        rounds = by_round(run, metric, split)
        worst = "max" if direction(metric) == "lower" else "min"
        values = rounds.groupby("round")["value"].agg(worst if over == "worst" else "mean")
        table = values.rename_axis("metric").reset_index()
        tables.append(table.assign(method=run.label, seed=run.block))
    if not tables:
        raise InputError("there is no finished run: run the study first")
    return pd.concat(tables, ignore_index=True)


def by_round(run: Labelled, metric: str, split: Split) -> pd.DataFrame:
    """Return a metric of each client by round, of the model that the client would use."""
    history = run.result.history
    rows = history[(history["split"] == split) & (history["metric"] == metric)]
    used = "personal" if (rows["model"] == "personal").any() else "global"
    rows = rows[rows["model"] == used]
    if rows.empty:
        known = history.loc[history["split"] == split, "metric"].unique()
        raise unknown("metric", metric, sorted(map(str, known)))
    return rows


def clients(runs: Sequence[Labelled], metric: str = "accuracy", split: Split = "test") -> Figure:
    """Draw how a metric is distributed over the clients of all seeds, a box an algorithm."""
    table = per_client(runs, f"{split}_{metric}")
    alt, labels = altair(), list(dict.fromkeys(run.label for run in runs))
    base = alt.Chart(table).encode(
        y=alt.Y("label:N", sort=labels, title=None, axis=_names(alt)),
        x=alt.X("value:Q", title=f"{metric} of a client ({split})", scale=_free(alt)),
        color=_colour(alt, labels, "label", legend=False),
    )
    boxes = base.mark_boxplot(extent="min-max", size=14, opacity=0.5)
    ticks = base.mark_tick(thickness=1, size=14, opacity=0.7)
    return _figure(boxes + ticks, height=max(60, 2 * ROW * len(labels)))


def front(found: Frontier) -> Figure:
    """Draw two summaries of several settings with their intervals, and the front."""
    x, y = found.across
    kinds = ["on the front", "beaten in both", "levels down"]
    table = pd.DataFrame(
        {
            "label": found.table["setting"],
            **{
                f"{axis}{end}": found.table[f"{name}{end}"]
                for axis, name in (("x", x), ("y", y))
                for end in ("", "_low", "_high")
            },
            "kind": np.where(
                found.table["levelling_down"],
                kinds[2],
                np.where(found.table["front"], kinds[0], kinds[1]),
            ),
            "front": found.table["front"],
        }
    )
    alt = altair()
    base = alt.Chart(table)
    spots = base.encode(
        x=alt.X("x:Q", title=x, scale=_free(alt)), y=alt.Y("y:Q", title=y, scale=_free(alt))
    )
    points = spots.mark_point(filled=True, size=70).encode(
        color=_colour(alt, kinds, "kind"),
        shape=alt.Shape("kind:N", scale=alt.Scale(domain=kinds), title=None),
    )
    line = alt.Chart(table[table["front"]]).mark_line(color="#999999", strokeDash=[4, 3])
    bars = alt.Chart(table.dropna(subset=["x_low", "y_low"])).mark_rule(color="#999999")
    across = bars.encode(x=alt.X("x_low:Q", title=x, scale=_free(alt)), x2="x_high:Q", y="y:Q")
    along = bars.encode(y=alt.Y("y_low:Q", title=y, scale=_free(alt)), y2="y_high:Q", x="x:Q")
    names = [
        alt.Chart(table[chosen])
        .mark_text(align="left", dx=7, dy=dy, limit=220, fontWeight=weight)
        .encode(x="x:Q", y="y:Q", text="label:N")
        for chosen, weight, dy in (
            (table["label"] == found.recommended, "bold", 12),
            (table["label"] != found.recommended, "normal", -7),
        )
    ]
    return _figure(alt.layer(line.encode(x="x:Q", y="y:Q"), across, along, points, *names))


def payers(
    runs: Sequence[Labelled],
    method: str,
    reference: str,
    metric: str = "accuracy",
    split: Split = "test",
) -> Figure:
    """Draw what each client gains or loses by one algorithm instead of another.

    Mean over seeds of the paired difference, with its 95 % t interval; certain after Holm over all
    clients.
    """
    table = gains(runs, method, reference, metric, split)
    alt = altair()
    labelled = len(table) <= MANY
    order = table["client"].tolist()
    axis = _names(alt) if labelled else None
    y = alt.Y("client:N", sort=order, title=None if labelled else "clients", axis=axis)
    title = f"{metric} gained by {method} over {reference}"
    spots = alt.Chart(table).encode(y=y)
    words = [GAINS, UNTOLD, PAYS]
    shades = alt.Scale(domain=words, range=[PALETTE[0], PALETTE[7], PALETTE[1]])
    points = spots.mark_point(filled=True, size=45).encode(
        x=alt.X("gain:Q", title=title),
        color=alt.Color("verdict:N", scale=shades, title=None),
        shape=alt.Shape("verdict:N", scale=alt.Scale(domain=words), title=None),
    )
    rules = alt.Chart(table.dropna(subset=["low"])).mark_rule(color="#999999")
    zero = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[3, 3]).encode(x="x:Q")
    drawn = alt.layer(zero, rules.encode(y=y, x=alt.X("low:Q", title=title), x2="high:Q"), points)
    height = max(60, ROW * len(table)) if labelled else 2 * HEIGHT
    return _figure(drawn, height=height)


def gains(
    runs: Sequence[Labelled], method: str, reference: str, metric: str, split: Split
) -> pd.DataFrame:
    """Return one row a client, the largest gain first: ``gain, low, high, verdict``."""
    table = per_client(runs, f"{split}_{metric}")
    labels = list(dict.fromkeys(table["label"]))
    for name in (method, reference):
        if name not in labels:
            raise unknown("algorithm", name, labels)
    if method == reference:
        raise InputError(f"'{method}' against itself: name two algorithms")
    wide = table.pivot(index=["client", "block"], columns="label", values="value")
    apart = (wide[method] - wide[reference]) * (-1 if direction(metric) == "lower" else 1)
    rows = apart.rename("value").dropna().reset_index()
    if rows.empty:
        raise InputError(f"'{method}' and '{reference}' have no seed and client in common")
    rows = rows.rename(columns={"block": "seed"}).assign(metric=metric)
    rows["method"] = "=" + rows["client"].astype(str)
    zero = rows.drop_duplicates("seed").assign(method="", value=0.0)
    found = against(pd.concat([rows, zero]), "", metric)
    sure = found["certain"] & found["difference"].ne(0)
    verdict = np.where(sure, np.where(found["difference"] > 0, GAINS, PAYS), UNTOLD)
    return (
        found.assign(client=found["method"].str[1:], gain=found["difference"], verdict=verdict)
        .loc[:, ["client", "gain", "low", "high", "verdict"]]
        .sort_values("gain", ascending=False, kind="stable", ignore_index=True)
    )


def ranks(runs: Sequence[Labelled], metric: str = "mean_accuracy", split: Split = "test") -> Figure:
    """Draw the mean ranks of algorithms over seeds, 1 the best, with the critical difference.

    Two whose bars overlap cannot be told apart (Friedman's test, Nemenyi's critical difference).
    """
    long, higher = summaries(runs, metric, split)
    found = friedman(long, metric, higher_is_better=higher)
    half = found.critical_difference / 2
    table = pd.DataFrame({"label": found.ranks.index, "rank": found.ranks.to_numpy()})
    table = table.assign(low=table["rank"] - half, high=table["rank"] + half)
    alt = altair()
    base = alt.Chart(table).encode(
        y=alt.Y("label:N", sort=table["label"].tolist(), title=None, axis=_names(alt))
    )
    title = f"mean rank by {metric} over {found.blocks} blocks (1 is best)"
    bars = base.mark_rule(strokeWidth=6, opacity=0.35, color=PALETTE[0]).encode(
        x=alt.X("low:Q", title=title, scale=_free(alt)), x2="high:Q"
    )
    points = base.mark_point(filled=True, size=60, color=PALETTE[0], opacity=1).encode(x="rank:Q")
    told = f"Friedman p = {found.pvalue:.3g}; critical difference {found.critical_difference:.2f}"
    return _figure(bars + points, height=max(60, ROW * len(table)), title=told)


def _figure(chart: Any, height: int = HEIGHT, title: str | None = None) -> Figure:
    made = chart.properties(width=WIDTH, height=height)
    if title is not None:
        made = made.properties(title=title)
    made = made.configure_view(stroke=None).configure_axis(gridOpacity=0.5)
    return Figure(made.configure_title(fontSize=12, fontWeight="normal", anchor="start"))


def _colour(
    alt: Any, labels: list[str], field: str, *, legend: bool = True, stroked: bool = False
) -> Any:
    more = {"symbolType": "stroke"} if stroked else {}
    shown = alt.Legend(labelLimit=320, symbolOpacity=1, **more) if legend else None
    scale = alt.Scale(domain=labels, range=[PALETTE[i % len(PALETTE)] for i in range(len(labels))])
    return alt.Color(f"{field}:N", scale=scale, title=None, legend=shown)


def _free(alt: Any) -> Any:
    """Return a scale that need not begin at zero."""
    return alt.Scale(zero=False)


def _names(alt: Any) -> Any:
    return alt.Axis(labelLimit=320)
