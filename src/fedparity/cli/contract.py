"""``fedparity check RUN --contract FILE``: whether a run keeps a contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from fedparity.certainty import UNTOLD
from fedparity.contracts import judge, read_contract
from fedparity.records.result import Result

CODES = {"broken": 1, UNTOLD: 3, "holds": 0}
"""Exit codes, of which the first that some clause has is taken; wrong input ends with 2."""


def check(run: Path, contract: Path, against: Sequence[Path]) -> None:
    """Print a line a clause, and end with the code of the whole."""
    clauses, others = read_contract(contract), [Result.load(other) for other in against]
    verdicts = judge(Result.load(run), clauses, others)
    for verdict in verdicts:
        typer.echo(f"{verdict.word}: {verdict.clause.text} ({verdict.reason})")
    words = {verdict.word for verdict in verdicts}
    code = next(code for word, code in CODES.items() if word in words)
    if code:
        raise typer.Exit(code)
