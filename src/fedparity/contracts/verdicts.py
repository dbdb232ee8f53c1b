"""Whether a run keeps a contract: it holds, it is broken, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from fedparity.certainty import FEW, UNTOLD
from fedparity.contracts.clauses import Clause, Limit, NotLevelledDown, parse_clause
from fedparity.contracts.levelling import Word, levelled
from fedparity.contracts.references import reference
from fedparity.records.result import Result


class Verdict(NamedTuple):
    """The word on a clause, and why."""

    clause: Clause
    word: Word
    reason: str


def judge(
    result: Result,
    clauses: Iterable[Clause | str],
    against: Result | Iterable[Result] = (),
) -> tuple[Verdict, ...]:
    """Judge a run by its test examples, clause by clause.

    Parameters
    ----------
    result
        The run.
    clauses
        Clauses, or their texts.
    against
        Runs of the algorithms that clauses compare with. One that is not among them is looked for
        beside the run, in its study or comparison.

    Notes
    -----
    A limit is about every client. It holds where each client's gap, by itself at the clause's
    confidence, is certainly below the limit: its one-sided bound is, and so says the test that
    heeds skewed losses, as a tail that a sample has missed makes a bound too low. One client above
    the limit would have to be missed, which is that unlikely already. It is broken where
    some client's gap is certainly above the limit, with the confidence shared by all clients
    (Holm). A client with fewer than :data:`~fedparity.certainty.FEW` test examples settles nothing,
    and so leaves the clause open. Of a run whose clients trained alone nothing can be told.
    ``not levelled_down``: see :func:`fedparity.contracts.levelling.levelled`.
    """
    given = (against,) if isinstance(against, Result) else tuple(against)
    read = [parse_clause(each) if isinstance(each, str) else each for each in clauses]
    return tuple(Verdict(clause, *_judged(result, clause, given)) for clause in read)


def _judged(result: Result, clause: Clause, given: tuple[Result, ...]) -> tuple[Word, str]:
    if result.alone:
        return UNTOLD, "each client trained alone"
    if isinstance(clause, NotLevelledDown):
        return levelled(result, reference(result, clause.against, given), clause.confidence)
    return _limited(result, clause)


def _limited(result: Result, clause: Limit) -> tuple[Word, str]:
    if result.verdicts.empty:
        return UNTOLD, "no losses of single examples or no L* are kept"
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
        return "broken", why
    missing = set(result.clients["client"].astype(str)) - set(found["client"])
    within = (found["gap_high"] <= clause.limit) & (found["gap"] < clause.limit) & (each <= alpha)
    still = [*sorted(missing), *found.loc[few | ~within, "client"]]
    if not still:
        high = float(np.max(found["gap_high"]))
        return "holds", f"no client's gap is above {high:.3f}"
    more = f" and {len(still) - 3} more" if len(still) > 3 else ""
    return UNTOLD, f"open for {', '.join(still[:3])}{more}"
