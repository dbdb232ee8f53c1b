"""A packaged study's section of a page: what was run, how, by which code, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import pandas as pd

from fedparity.errors import InputError
from fedparity.studies.beside import Beside
from fedparity.studies.markup import markdown
from fedparity.studies.places import place
from fedparity.studies.provenance import Session, sessions

WIDTH = 120
SHOWN = 20
"""Runs without a number that are told one by one."""


def section(found: Beside, quick: bool = False) -> str:
    """Return a study's section as Markdown."""
    table, study = found.table, found.study
    runs = len(study.runs)
    lines = [f"### {table.title}", "", *wrap(table.protocol, WIDTH), ""]
    if table.missing:
        lines += [*wrap(f"Not stored: {table.missing}", WIDTH), ""]
    command = f"fedparity study {table.name}{' --quick' if quick else ''}"
    lines += ["```console", f"$ {command}", "```", ""]
    waiting, bad = found.left()
    share = f"{runs - waiting} of {runs} runs so far" if waiting else f"All {runs} runs"
    scale = "cut down to minutes, so no verdict" if quick else "in full"
    seeds = ", ".join(map(str, study.seeds))
    for key in table.repeats:
        seeds += f", each with {len(study.grid[key])} values of {key}"
    made = _made(sessions(study.out))
    brackets = "Means over these runs; in brackets the 95 % t interval, where there are several."
    lines += [*wrap(f"{share}, {scale}; seeds {seeds}. {made} {brackets}", WIDTH), ""]
    lines += _table(found.cells())
    held = found.holding()
    if len(held):
        lines += ["", "Where the orders hold (`lower` is below `higher`), and by how much:", ""]
        lines += _table(held)
    if bad:
        lines += ["", "Without a number:", "", *(f"- {markdown(each)}" for each in bad[:SHOWN])]
        lines += [f"- and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    return "\n".join(line.rstrip() for line in lines)


def _made(when: Sequence[Session]) -> str:
    """Return a sentence on the sessions in which the runs were done."""
    told = [
        f"{each.day}, commit {each.commit} (fedparity {each.fedparity}, torch {each.torch})"
        for each in when
    ]
    return f"Run on {'; '.join(told)}." if told else "When and by which commit is not known."


def _table(frame: pd.DataFrame) -> list[str]:
    rows = [[markdown(name) for name in frame], ["---"] * len(frame.columns)]
    rows += [[markdown(cell) for cell in row] for row in frame.to_numpy().tolist()]
    return [f"| {' | '.join(row)} |" for row in rows]


def write(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of a page that have this name; without marks, at its end."""
    begin, end = (f"<!-- {name}: {mark} -->" for mark in ("begin", "end"))
    try:
        old = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the page {page}: {error.strerror}") from None
    before, first, rest = old.partition(begin)
    _, last, after = rest.partition(end)
    if first and not last:
        raise InputError(f"{page} has the mark {begin} and not {end}: add it")
    if not first:
        before, after = f"{old.rstrip()}\n\n", "\n"
    place(page, f"{before}{begin}\n{text}\n{end}{after}")
