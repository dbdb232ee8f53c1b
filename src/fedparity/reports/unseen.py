"""What the final model gives to clients that never trained, in sentences and as a table."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from fedparity.reports.numbers import Results, number

MOST = 40
"""Clients shown; of more, those with the highest losses."""


class Shown(NamedTuple):
    """A table: one row a client, its test examples, and the numbers of each algorithm."""

    heads: list[str]
    names: list[str]
    cells: list[list[str]]


def sentences(results: Results) -> list[str]:
    """Say of each run with unseen clients what these get of the shared model."""
    found = []
    for name, result in results.items():
        if result.unseen is None:
            continue
        about = f"{name}: " if len(results) > 1 else ""
        kind, scale, unit = _shown_by(result.unseen)
        said = " and ".join(
            f"{who} {_mean_and_worst(table, kind, scale, unit)}"
            for who, table in (("they", result.unseen), ("those that trained", result.clients))
        )
        many = len(result.unseen)
        clients = "1 client" if many == 1 else f"{many} clients"
        found.append(f"Unseen: {about}{clients} never trained; of the shared model {said}.")
    return found


def shown(results: Results) -> Shown | None:
    """Return the numbers of unseen clients, where all runs have the same ones."""
    tables = {name: result.unseen for name, result in results.items()}
    first = next(iter(tables.values()))
    if first is None:
        return None
    names = list(map(str, first.sort_values("test_loss", ascending=False)["client"].head(MOST)))
    by_name = {}
    for name, table in tables.items():
        if table is None or set(table["client"]) != set(first["client"]):
            return None
        by_name[name] = table.set_index("client")
    names.sort(key=list(first["client"]).index)
    tested = first.set_index("client")["n_test"]
    heads, columns = ["test"], [[str(tested[client]) for client in names]]
    for name, rows in by_name.items():
        kind, scale, unit = _shown_by(rows)
        heads.append((f"{name}\n" if len(tables) > 1 else "") + kind + unit)
        form = ".1f" if unit else ".3f"
        values = scale * rows[f"test_{kind}"].loc[names]
        columns.append([number(float(value), form) for value in values])
    return Shown(heads, names, columns)


def _shown_by(table: pd.DataFrame) -> tuple[str, int, str]:
    """Return by what clients are told: accuracy in percent where there is one, else the loss."""
    return ("accuracy", 100, " %") if "test_accuracy" in table else ("loss", 1, "")


def _mean_and_worst(table: pd.DataFrame, kind: str, scale: int, unit: str) -> str:
    values = scale * table[f"test_{kind}"].dropna()
    if values.empty:
        return "cannot be judged without test examples"
    worst = values.min() if kind == "accuracy" else values.max()
    form = ".1f" if unit else ".3f"
    mean = number(float(values.mean()), form)
    return f"have a mean {kind} of {mean}{unit}, at worst {number(float(worst), form)}{unit}"
