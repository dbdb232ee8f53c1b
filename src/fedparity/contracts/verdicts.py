"""Whether a run keeps a contract: it holds, it is broken, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from fedparity.certainty import FEW
from fedparity.contracts.clauses import Clause, parse_clause
from fedparity.records.result import Result

Word = Literal["holds", "broken", "cannot be told"]


class Verdict(NamedTuple):
    """The word on a clause, and why."""

    clause: Clause
    word: Word
    reason: str


def judge(result: Result, clauses: Iterable[Clause | str]) -> tuple[Verdict, ...]:
    """Judge a run by its test examples, clause by clause.

    Notes
    -----
    A clause is about every client. It holds where each client's one-sided bound of the gap, by
    itself at the clause's confidence, is at most the limit: one client above it would have to be
    missed, which is that unlikely already. It is broken where some client's gap is certainly above
    the limit, with the confidence shared by all clients (Holm). A client with fewer than
    :data:`~fedparity.certainty.FEW` test examples settles nothing, and so leaves the clause open.
    Of a run whose clients trained alone nothing can be told.
    """
    read = [parse_clause(each) if isinstance(each, str) else each for each in clauses]
    return tuple(_judged(result, clause) for clause in read)


def _judged(result: Result, clause: Clause) -> Verdict:
    if result.alone:
        return Verdict(clause, "cannot be told", "each client trained alone")
    if result.verdicts.empty:
        return Verdict(clause, "cannot be told", "no losses of single examples or no L* are kept")
    twice = 1 - 2 * (1 - clause.confidence)  # one-sided: both ends of a wider two-sided interval
    found = result.certainty(metrics=(), confidence=max(twice, 1e-6), limit=clause.limit)
    few = found["n"] < FEW
    sure = (found["gap_p"] <= 1 - clause.confidence) & (found["gap"] > clause.limit)
    if sure.any():
        worst = found[sure].sort_values("gap").iloc[-1]
        told = f"{worst['client']}: gap {worst['gap']:.3f}, certainly above {clause.limit:g}"
        return Verdict(clause, "broken", told)
    missing = set(result.clients["client"].astype(str)) - set(found["client"])
    within = found["gap_high"] <= clause.limit
    still = [*sorted(missing), *found.loc[few | ~within, "client"]]
    if not still:
        high = float(np.max(found["gap_high"]))
        return Verdict(clause, "holds", f"no client's gap is above {high:.3f}")
    more = f" and {len(still) - 3} more" if len(still) > 3 else ""
    return Verdict(clause, "cannot be told", f"open for {', '.join(still[:3])}{more}")
