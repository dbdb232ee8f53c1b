"""``fedparity tune``, called as a user calls it."""

from __future__ import annotations

import pytest

DATA = [
    *("tune", "--data", "eagle_synthetic(n=60)", "--model", "linear", "--lstar", "none"),
    *("--rounds", "3", "--steps", "1", "--fractions", "0.5,0.3,0.2", "--trials", "2"),
]
OVER = ("--over", "solver.lr=0.1..1 log")


def test_the_best_settings_are_told(cli):
    done = cli(*DATA, *OVER, "--aim", "lowest loss")
    assert done.code == 0
    assert "Best on validation: solver.lr=" in done.out


def test_an_aim_that_nothing_meets_ends_with_code_1(cli):
    done = cli(*DATA, *OVER, "--aim", "lowest loss with accuracy >= 101")
    assert done.code == 1
    assert "No trial met every condition" in done.out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((*OVER, "--aim", "smallest loss"), "cannot read the aim"),
        (("--over", "solver.lr", "--aim", "lowest loss"), "cannot read --over"),
    ],
)
def test_what_is_wrong_is_one_line_and_code_2(cli, more, told):
    done = cli(*DATA, *more)
    assert done.code == 2
    assert told in done.err
