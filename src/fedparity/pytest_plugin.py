"""A fixture for tests of a run: ``fedparity_contract(run, "max_gap <= 0.1 @ 95%")``.

pytest loads it by itself where fedparity is installed; nothing heavy is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedparity.records.result import Result

Keep = Callable[..., None]


def keep(
    run: Result | str | Path,
    *clauses: str | Path,
    against: Result | str | Path | None = None,
    strict: bool = True,
) -> None:
    """Fail a test whose run does not keep a contract.

    Parameters
    ----------
    run
        A result, or the directory of a run.
    clauses
        Clauses, such as ``max_gap <= 0.1 @ 95%``, or paths of contracts.
    against
        The run that ``not levelled_down against fedavg`` compares with, where it is not beside the
        first one in its study or comparison.
    strict
        Fail where it cannot be told too; else skip.
    """
    from fedparity.contracts import judge, parse_clause, read_contract
    from fedparity.errors import InputError
    from fedparity.records.result import Result

    result, *others = (
        Result.load(each) if isinstance(each, str | Path) else each
        for each in (run, against)
        if each is not None
    )
    read = [
        clause
        for each in clauses
        for clause in (read_contract(each) if isinstance(each, Path) else [parse_clause(each)])
    ]
    if not read:
        raise InputError("a contract has at least one clause, such as 'max_gap <= 0.1 @ 95%'")
    verdicts = judge(result, read, others)
    told = [f"{v.word}: {v.clause.text} ({v.reason})" for v in verdicts if v.word != "holds"]
    if not told:
        return
    if strict or any(v.word == "broken" for v in verdicts):
        pytest.fail("\n".join(told), pytrace=False)
    pytest.skip("\n".join(told))


@pytest.fixture
def fedparity_contract() -> Keep:
    """Return a function that fails a test whose run does not keep a contract."""
    return keep
