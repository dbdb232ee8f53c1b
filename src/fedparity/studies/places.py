"""Files of a study: never half-written, never removed."""

from __future__ import annotations

from pathlib import Path


def place(file: Path, text: str) -> None:
    """Write a text beside and rename it."""
    beside = file.with_name(file.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def put_aside(directory: Path) -> None:
    """Give a directory another name, so that the run can begin again."""
    number = 1
    while (aside := directory.with_name(f"{directory.name}.damaged-{number}")).exists():
        number += 1
    if directory.exists():
        directory.rename(aside)
