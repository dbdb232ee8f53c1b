"""Where the files of the real datasets are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from fedparity.errors import InputError

VARIABLE = "FEDPARITY_DATA"


def data_dir(explicit: Path | str | None = None) -> Path:
    """Return the data folder: the one given, else ``$FEDPARITY_DATA``, else the user's cache."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    return Path.home() / ".cache" / "fedparity"


def find(dataset: str, folder: Path | str | None, names: tuple[str, ...], remedy: str) -> Path:
    """Return the first of ``names`` that exists in the data folder.

    Otherwise one line says where the file was looked for and how to get it.
    """
    root = data_dir(folder)
    for name in names:
        if (root / name).is_file():
            return root / name
    raise InputError(
        f"{dataset}: no file {' or '.join(names)} in {root}: {remedy}, "
        f"or say where it is with --data-dir or ${VARIABLE}"
    )
