"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

DIGITS = [
    *("--data", "digits", "--partition", "shards", "--clients", "5"),
    *("--model", "linear", "--lr", "0.1", "--lstar", "best_validation(rounds=3)", "--rounds", "3"),
]


class Outcome(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]
