"""The table of all methods tells every row, also of what does not run."""

from __future__ import annotations

from pathlib import Path

import everyone
import numpy as np
import pytest
import study
from cells import Cell, Found, outcomes

import fedparity as fp
from fedparity.parts import PARTS, Uniform
from fedparity.recipes import algorithm

CELL = Cell("everyone-digits", "fedavg", 0, 1, Path("nowhere"))


def test_every_part_is_in_a_row():
    rows = everyone.ALL["everyone-clothes"].rows
    there = {type(part) for text, _ in rows.values() for part in algorithm(text).parts}
    absent = set(PARTS.values()) - there - {Uniform}
    assert all(part().group_kinds for part in absent)  # no groups of clothes are known


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


def test_a_row_counts_who_certainly_gains_and_pays(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 2))
    y = np.where(np.arange(600) < 300, x[:, 0] > 0, x[:, 0] < 0).astype(int)
    owner = np.repeat(["up", "down"], 300)
    part = np.tile(["train", "validation", "test"], 200)
    clients = fp.Federation.from_arrays(x, y, owner, part, outputs=2)
    # two tasks that contradict each other: together nobody learns anything, alone both do
    experiment = fp.Experiment(clients, "linear", rounds=3, lstar="best_validation(rounds=30)")
    numbers = everyone.columns(experiment.run(tmp_path))
    assert (numbers["gain"], numbers["pay"]) == (0, 2)
    assert numbers["worst 5 %"] <= numbers["mean %"] <= numbers["best 5 %"]


def test_a_table_is_written_between_its_marks_only(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one: begin -->\nold\n<!-- one: end -->\nb\n")
    study.write(page, "one", "new")
    assert page.read_text() == "a\n<!-- one: begin -->\nnew\n<!-- one: end -->\nb\n"
    with pytest.raises(fp.InputError, match="has no marks <!-- two: begin -->"):
        study.write(page, "two", "new")
