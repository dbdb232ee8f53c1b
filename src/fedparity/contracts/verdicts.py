"""Whether a run keeps a contract: it holds, it is broken, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from fedparity.certainty import FEW, UNTOLD
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
    A clause is about every client. It holds where each client's gap, by itself at the clause's
    confidence, is certainly below the limit: its one-sided bound is, and so says the test that
    heeds skewed losses, as a tail that a sample has missed makes a bound too low. One client above
    the limit would have to be missed, which is that unlikely already. It is broken where
    some client's gap is certainly above the limit, with the confidence shared by all clients
    (Holm). A client with fewer than :data:`~fedparity.certainty.FEW` test examples settles nothing,
    and so leaves the clause open. Of a run whose clients trained alone nothing can be told.
    """
    read = [parse_clause(each) if isinstance(each, str) else each for each in clauses]
    return tuple(_judged(result, clause) for clause in read)


def _judged(result: Result, clause: Clause) -> Verdict:
    if result.alone:
        return Verdict(clause, UNTOLD, "each client trained alone")
    if result.verdicts.empty:
        return Verdict(clause, UNTOLD, "no losses of single examples or no L* are kept")
    alpha = 2 * (1 - clause.confidence)  # one-sided: both ends of a wider two-sided interval
    told = partial(
        result.certainty, metrics=(), confidence=max(1 - alpha, 1e-6), limit=clause.limit
    )
    found = told()
    each = told(adjusted=False)["gap_p"]  # NaN, where nothing can be said, is within no limit
    few = found["n"] < FEW
    sure = (found["gap_p"] <= 1 - clause.confidence) & (found["gap"] > clause.limit)
    if sure.any():
        worst = found[sure].sort_values("gap").iloc[-1]
        why = f"{worst['client']}: gap {worst['gap']:.3f}, certainly above {clause.limit:g}"
        return Verdict(clause, "broken", why)
    missing = set(result.clients["client"].astype(str)) - set(found["client"])
    within = (found["gap_high"] <= clause.limit) & (found["gap"] < clause.limit) & (each <= alpha)
    still = [*sorted(missing), *found.loc[few | ~within, "client"]]
    if not still:
        high = float(np.max(found["gap_high"]))
        return Verdict(clause, "holds", f"no client's gap is above {high:.3f}")
    more = f" and {len(still) - 3} more" if len(still) > 3 else ""
    return Verdict(clause, UNTOLD, f"open for {', '.join(still[:3])}{more}")
