"""An algorithm explained: what it sends, what the server learns, what can be set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedparity.catalogue.methods import KINDS, listed
from fedparity.catalogue.settings import settings_of, summary_line, value_text
from fedparity.catalogue.traffic import Amount, Traffic, traffic
from fedparity.data import DATASETS, PARTITIONS
from fedparity.learning import models
from fedparity.method import HOOKS, Part
from fedparity.method.algorithm import Algorithm
from fedparity.recipes import KNOWN
from fedparity.recipes import algorithm as read

DETAILS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "models": models.MODELS,
}
"""What is explained by its docstring, by list."""


def explain(text: str, parameters: int, console: Console) -> None:
    """Print the explanation of an algorithm for a model of so many parameters.

    Any other name of a list is explained by what its list says of it.
    """
    if _explain_other(text, console):
        return
    algorithm = read(text)
    sent = traffic(algorithm)
    console.print(escape(text), style="bold")
    if not algorithm.parts:
        console.print("FedAvg: clients train, the server averages; no part is added.")
    for line in _lines(algorithm, sent, parameters):
        console.print(escape(line), highlight=False)
    for part in algorithm.parts:
        _explain_part(part, console)


def _explain_other(text: str, console: Console) -> bool:
    """Print what a list says of a name that is no algorithm; tell whether there is one."""
    name = text.strip().partition("(")[0].lower().replace("-", "_")
    if name in KNOWN:
        return False
    for kind, make in KINDS.items():
        if kind in ("algorithms", "parts"):  # all of these are known
            continue
        found = make()
        for row in found.rows:
            if row[0] != name:
                continue
            console.print(escape(f"{name} ({kind})"), style="bold")
            for column, cell in zip(found.columns[1:], row[1:], strict=True):
                console.print(escape(f"{column}: {cell}"), highlight=False)
            made = DETAILS.get(kind, {}).get(name)
            if kind == "datasets" and made is not None:
                console.print(escape(f"settings: {listed(settings_of(made))}"), highlight=False)
            if made is not None:
                console.print(escape(f"\n{inspect.getdoc(made) or ''}"), highlight=False)
            return True
    return False


def _lines(algorithm: Algorithm, sent: Traffic, d: int) -> list[str]:
    if not sent.federated:
        return ["", "No federation: nothing is sent, every client keeps its own model."]
    phases, base = ", ".join(sent.exchanges), Amount(models=int(sent.shares_model))
    lines = [
        "",
        f"Exchanges a round: {len(sent.exchanges)} ({phases})",
        f"Sent to a client:  {_amount(base + sent.extra_down, d)}",
        f"Sent by a client:  {_amount(base + sent.extra_up, d)}",
        f"The server learns of one client: {learns(algorithm)}",
    ]
    if any("lstar" in part.reads for part in algorithm.parts):
        lines.append("Before the first round each client finds its best loss alone, L*; not sent")
    return lines


def learns(algorithm: Algorithm) -> str:
    """Return what the server learns of one client from all parts together."""
    found = dict.fromkeys(
        thing.strip()
        for part in algorithm.parts
        for thing in part.learns.replace(" and ", ", ").split(",")
    )
    return ", ".join(found) or Part.learns


def _amount(total: Amount, d: int) -> str:
    if total.layers:
        return f"{total}, in floats"
    floats = total.models * d + total.scalars
    return f"{total} floats; with d = {d:,}: {floats:,} ({4 * floats / 1e6:.2f} MB)"


def _explain_part(part: Part, console: Console) -> None:
    hooks = ", ".join(hook for hook in HOOKS if hook in part.hooks)
    console.print()
    paper = f" ({part.paper})" if part.paper.strip("-") else ""
    console.print(f"[bold]{part.name}[/bold]{escape(paper)}", highlight=False)
    console.print(escape(summary_line(type(part))), highlight=False)
    console.print(escape(f"Equalises: {part.equalises}. Active hooks: {hooks}."), highlight=False)
    if part.reconstructed:
        console.print("Reconstructed: its formulas were checked against neither paper nor code.")
    settings = settings_of(type(part))
    if not settings:
        return
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    view.add_column("setting", no_wrap=True)
    view.add_column("allowed", overflow="fold", max_width=24)
    view.add_column("meaning", overflow="fold")
    for setting in settings:
        here = getattr(part, setting.name)
        usual = "" if here == setting.default else f" (default {value_text(setting.default)})"
        cells = (f"{setting.name}={value_text(here)}{usual}", setting.allowed, setting.meaning)
        view.add_row(*(escape(cell) for cell in cells))
    console.print(view)
