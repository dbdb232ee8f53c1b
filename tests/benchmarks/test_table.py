"""The table of all methods tells every row, also of what does not run."""

from __future__ import annotations

from pathlib import Path

import everyone
from cells import Cell, Found, outcomes

from fedparity.parts import PARTS, Uniform
from fedparity.recipes import algorithm

CELL = Cell("everyone-digits", "fedavg", 0, 1, Path("nowhere"))


def test_every_part_is_in_a_row():
    rows = everyone.ALL["everyone-clothes"].rows
    there = {type(part) for text, _ in rows.values() for part in algorithm(text).parts}
    assert set(PARTS.values()) - there <= {Uniform}


def test_a_cell_that_fails_is_told_with_its_reason():
    ((cell, found),) = outcomes([CELL], int, workers=1)  # type: ignore[arg-type]
    assert cell == CELL
    assert found.reason.startswith("TypeError: int() argument must be")


def test_a_method_without_numbers_is_a_row_with_its_reason():
    rows = [("fedavg", Found({"mean %": 50.0})), ("fedavg", Found({"mean %": 60.0}))]
    lines = everyone.told([*rows, ("afl", Found(reason="diverged: a | b"))]).splitlines()
    assert lines[-2:] == [
        "| fedavg | 55.00 ± 7.07 |",
        "| afl | 1 without a number: diverged: a \\| b |",
    ]
