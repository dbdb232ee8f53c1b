"""Whether a run levels down against another one, with certainty."""

from __future__ import annotations

from typing import Literal

from fedparity.certainty import GAINS, PAYS, UNTOLD, Change, change
from fedparity.records.result import Result

Word = Literal["holds", "broken", "cannot be told"]


def levelled(result: Result, reference: Result, confidence: float) -> tuple[Word, str]:
    """Return the word on ``not levelled_down`` against a reference, and why.

    See :func:`word_on` for what is told.
    """
    if (why := result.incomparable(reference)) is not None:
        return UNTOLD, why
    for run, which in ((result, "the run"), (reference, "the reference")):
        if not run.has_tests():
            return UNTOLD, f"{which} has kept no losses of single test examples"
    found = change(
        result.predictions,
        reference.predictions,
        lstar=result.given_lstar("test"),
        confidence=confidence,
    )
    return word_on(found)


def word_on(found: Change) -> tuple[Word, str]:
    """Return whether a change is one that does not level down, and why.

    Notes
    -----
    A run levels down where its gaps are closer than the reference's, some clients are served worse
    and none is served better. (Gaps that come closer while nobody's falls do so because the small
    ones grew most: whoever pays is among the well served.) What a client is served is its loss,
    compared on the same test examples.

    The clause holds where no loss changes, where some client certainly gains (Holm over all
    clients), or where gaps are certainly no closer: the interval of the change of their variance is
    not below zero. The last two err each with half of what the confidence leaves. It is broken
    where gaps are certainly closer, a client certainly pays, and every other one gains less than
    that, if anything: what the payer loses at least is more than any client gains at most, by
    intervals that hold together. That nobody gains at all, no sample can show. A client with fewer
    than :data:`~fedparity.certainty.FEW` test examples may gain much, so it leaves the clause open
    unless another one certainly gains.
    """
    clients, (moved, low, high) = found.clients.set_index("client"), found.variance
    if (clients["change"] == 0).all() and (clients["high"].fillna(0) == 0).all():
        return "holds", "no client's losses change"
    gains = clients[clients["verdict"] == GAINS].sort_values("change")
    if len(gains):
        return "holds", f"{gains.index[0]} certainly gains {-gains['change'].iloc[0]:.3f}"
    if low >= 0:
        return "holds", f"gaps are certainly no closer: their variance changes by {moved:+.3g}"
    pays = clients[clients["verdict"] == PAYS].sort_values("low")
    if not high < 0:
        return UNTOLD, "nobody certainly gains, and gaps are not certainly closer"
    if not len(pays):
        return UNTOLD, "gaps are closer, and nobody certainly gains or pays"
    payer, least, most = pays.index[-1], pays["low"].iloc[-1], -clients["low"].min()
    if least <= most:
        client = clients["low"].idxmin()
        return UNTOLD, f"{payer} certainly pays, but {client} may gain as much"
    return "broken", (
        f"gaps are certainly closer, {payer} certainly pays (at least {least:.3f}), and nobody "
        f"gains more than {max(most, 0):.3f}"
    )
