"""A federation seen: a table in the terminal, a figure in the browser."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedparity.errors import InputError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from fedparity.data.examples import Examples

BLOCKS = " ▁▂▃▄▅▆▇█"
LETTERS = " .:-=+*%#"
WIDEST = 32


def bars(counts: npt.NDArray[Any], levels: str = BLOCKS) -> str:
    """Return one character a count, as high as its share of the largest; none is a blank.

    >>> bars(np.array([0, 1, 4, 8]))
    ' ▁▄█'
    """
    top = max(int(counts.max(initial=0)), 1)
    heights = np.ceil(counts * (len(levels) - 1) / top).astype(int)
    return "".join(levels[height] for height in heights)


def table(federation: Examples, console: Console, limit: int) -> None:
    """Print the first ``limit`` clients and a line on all."""
    sizes = federation.sizes()
    shown = min(limit, len(federation))
    view = Table()
    view.add_column("client", overflow="fold")
    for part in ("train", "validation", "test"):
        view.add_column(part, justify="right")
    classes = federation.kind == "classes"
    header = f"labels 0 to {federation.outputs - 1}" if classes else "mean target"
    view.add_column(header, no_wrap=True)
    last = _labels(federation, shown, console) if classes else _means(federation, shown)
    for k in range(shown):
        row = sizes.iloc[k]
        numbers = [str(row[f"n_{part}"]) for part in ("train", "validation", "test")]
        view.add_row(escape(federation.names[k]), *numbers, last[k])
    console.print(repr(federation), markup=False, highlight=False, soft_wrap=True)
    console.print(view)
    n = federation.train.sizes
    more = f"{len(federation) - shown} more clients. " if shown < len(federation) else ""
    console.print(
        f"{more}Training examples a client: {n.min()} to {n.max()}, median {np.median(n):g}.",
        highlight=False,
    )


def _labels(federation: Examples, shown: int, console: Console) -> list[str]:
    levels = LETTERS if console.options.ascii_only else BLOCKS
    counts = federation.label_counts().to_numpy()[:shown]
    together = -(-counts.shape[1] // WIDEST)  # many classes: neighbours share a bar
    counts = np.add.reduceat(counts, np.arange(0, counts.shape[1], together), axis=1)
    return [bars(row, levels) for row in counts]


def _means(federation: Examples, shown: int) -> list[str]:
    return [f"{float(federation.train.client(k)[1].mean()):.4g}" for k in range(shown)]


def figure(federation: Examples, limit: int) -> Figure:
    """Draw the sizes, stacked by split, and the label histogram of the first clients."""
    try:
        from plotly import graph_objects
        from plotly.subplots import make_subplots
    except ImportError:
        raise InputError("plotly is not installed: pip install 'fedparity[plot]'") from None
    shown = min(limit, len(federation))
    names = [html.escape(name) for name in federation.names[:shown]]
    view = make_subplots(rows=1, cols=2, subplot_titles=("examples a client", "labels a client"))
    sizes = federation.sizes().iloc[:shown]
    for part in ("train", "validation", "test"):
        view.add_bar(x=names, y=sizes[f"n_{part}"].tolist(), name=part, row=1, col=1)
    if federation.kind == "classes":
        counts = federation.label_counts().iloc[:shown]
        picture = graph_objects.Heatmap(
            x=names,
            y=[html.escape(str(label)) for label in counts.columns],
            z=counts.to_numpy().T.tolist(),
            colorscale="Blues",
            colorbar={"title": "examples"},
        )
        view.update_yaxes(title="class", type="category", row=1, col=2)
    else:
        count, edges = np.histogram(federation.train.y.numpy(), bins=30)
        middle = (edges[:-1] + edges[1:]) / 2
        picture = graph_objects.Bar(x=middle.tolist(), y=count.tolist(), name="targets (train)")
        view.layout.annotations[1].text = "targets, all clients"
    view.add_trace(picture, row=1, col=2)
    some = f", the first {shown} shown" if shown < len(federation) else ""
    view.update_layout(
        barmode="stack",
        title=f"{len(federation)} clients{some}",
        legend={"orientation": "h"},
        template="plotly_white",
    )
    view.update_xaxes(type="category", row=1, col=1)
    return view
