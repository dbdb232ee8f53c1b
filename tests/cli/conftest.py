"""A command line that is called in an empty directory."""

from __future__ import annotations

import sys

import pytest
from calls import Cli, Outcome

from fedparity.cli import main


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Cli:
    """Return a function that runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")

    def call(*args: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(args)
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, *capsys.readouterr())

    return call
