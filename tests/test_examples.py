"""The examples run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.filterwarnings("ignore:eagle")
def test_the_combinations_run():
    file = EXAMPLES / "combinations.py"
    spec = importlib.util.spec_from_file_location("combinations", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = module.compare(rounds=2)
    assert list(table.index) == list(module.COMBINATIONS)
    assert table.notna().all().all()
