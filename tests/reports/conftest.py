"""A console whose text can be read back."""

from __future__ import annotations

import io

import pytest
from rich.console import Console


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120, color_system=None)


@pytest.fixture
def printed(console: Console):
    """Return what was printed so far."""

    def text() -> str:
        file = console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()

    return text
