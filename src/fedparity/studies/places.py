"""Files of a study: never half-written, never removed.

A directory of studies has all their runs in ``runs/``, each once, and of every study its file
``studies/NAME.yaml`` and its table ``studies/NAME.csv``.
"""

from __future__ import annotations

from pathlib import Path

from fedparity.errors import InputError

RUNS = "runs"
STUDIES = "studies"


def name_of(name: str) -> str:
    """Return a study's name, if files can have it too."""
    if not name or name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise InputError(f"'{name}' is no name of a study: it is that of its file too")
    return name


def studies_in(directory: Path) -> list[Path]:
    """Return the files of the studies that share a directory."""
    return sorted((directory / STUDIES).glob("*.yaml"))


def file_of(path: Path) -> Path:
    """Return the file of a study: itself, or the one in a directory that holds one study."""
    if not path.is_dir():
        return path
    held = studies_in(path)
    if not held:
        raise InputError(f"{path} holds no study: name a study's file, and {path} as --out")
    if len(held) > 1:
        names = ", ".join(each.stem for each in held)
        raise InputError(f"{path} holds the studies {names}: name the file of one, {held[0]}")
    return held[0]


def home_of(file: Path) -> Path:
    """Return the directory of a study: where its file was placed, or ``runs/NAME``."""
    home = file.parent.parent
    ours = file.parent.name == STUDIES and (home / RUNS).is_dir()
    return home if ours else Path(RUNS) / file.stem


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
