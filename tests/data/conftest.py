"""The folder of the real datasets, for the tests marked ``data``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedparity.data import data_dir


@pytest.fixture
def real() -> Callable[[str], Path]:
    """Return the data folder if it holds the given file or folder; else skip, saying so."""

    def folder(name: str) -> Path:
        if not (data_dir() / name).exists():
            pytest.skip(f"no {name} in {data_dir()}: set FEDPARITY_DATA to the data folder")
        return data_dir()

    return folder
