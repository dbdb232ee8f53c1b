"""What is wrong with data, or odd about it, all at once and with the remedy.

A problem is what no model can be trained with; everything else is told and left to the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

if TYPE_CHECKING:
    from fedparity.data.examples import Examples

DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( |$)")
COMMA = re.compile(r"[+-]?\d+(,\d+)?")
"""A number as it is written where the comma parts off what is below one."""
ALIKE = "has words that differ in case or spaces alone"
MOST_WORDS = 100
"""Different words beyond which a column is taken for names or free text."""
APART = 1000.0
"""Factor between the scales of two columns that is worth a word."""
WIDEST = 2000
"""Inputs beyond which the scales of single ones are not looked at."""
LOOKED_AT = 1000
AT_ONCE = 8
"""Inputs whose deviations are computed at once."""
SHOWN = 3


class Finding(NamedTuple):
    """One thing that was found.

    Parameters
    ----------
    where
        A column, a file, a client or the target.
    what
        What is so.
    remedy
        What to do about it.
    problem
        Whether nothing can be trained as it is.
    """

    where: str
    what: str
    remedy: str
    problem: bool = False

    def __str__(self) -> str:
        return f"{self.where} {self.what}: {self.remedy}"


def kind_of(column: pd.Series[Any]) -> str:
    """Return what a column holds: number, category, date, mixed or empty.

    >>> [kind_of(pd.Series(c)) for c in ([1, 2], ["a", "b"], ["2020-01-31"], ["1", "x"], [None])]
    ['number', 'category', 'date', 'mixed', 'empty']
    """
    kind = column.dtype.kind
    if kind == "M":
        return "date"
    if kind in "b" or isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    known = column.dropna()
    if not len(known):
        return "empty"
    if kind in "iuf":
        return "number"
    different = known.astype(str).drop_duplicates().head(LOOKED_AT)
    if different.str.match(DATE).mean() > 0.9:
        return "date"
    share = pd.to_numeric(different, errors="coerce").notna().mean()
    return "number" if share == 1 else "mixed" if share >= 0.5 else "category"


def table(
    df: pd.DataFrame,
    kinds: Mapping[str, str],
    needed: Sequence[str],
    prepare: str,
    named: Sequence[str] = (),
) -> Iterator[Finding]:
    """Tell of the columns of a table.

    Parameters
    ----------
    df
        The table.
    kinds
        What each input column holds, as :func:`kind_of` says.
    needed
        Columns that must be complete: client and target.
    prepare
        How inputs are made; with ``none`` they must be numbers already.
    named
        Columns whose words are names: of clients, classes and groups.
    """
    for name in needed:
        missing = int(df[name].isna().sum())
        if missing:
            told = f"misses {missing} of {len(df)} values"
            yield Finding(f"column '{name}'", told, "fill them in or drop the rows", True)
    for name in named:
        if alike := _alike(df[name]):
            remedy = "make them one word, or they are told apart"
            yield Finding(f"column '{name}'", f"{ALIKE} ({', '.join(map(repr, alike))})", remedy)
    for name, kind in kinds.items():
        for what, remedy, problem in _column(df[name], kind, prepare):
            yield Finding(f"column '{name}'", what, remedy, problem)
    if prepare == "none":
        numeric = [name for name, kind in kinds.items() if kind == "number"]
        yield from _scales({name: _scale(df[name]) for name in numeric}, "prepare='federated'")


def _column(column: pd.Series[Any], kind: str, prepare: str) -> Iterator[tuple[str, str, bool]]:
    out, raw = f"leave it out (--without {quote(str(column.name))})", prepare == "none"
    missing = int(column.isna().sum())
    if kind == "empty":
        yield "holds nothing", out, raw
        return
    if missing:
        filled = {"own": "your transformer fills them in", "none": "fill them in, drop the rows"}
        usual = "the most frequent word" if kind == "category" else "the mean"
        remedy = filled.get(prepare, f"{usual} is taken")
        yield f"misses {missing} of {len(column)} values", remedy, raw
    if kind == "date":
        first = str(column.dropna().iloc[0])[:20]
        told = f"turn them into numbers, such as days or years since, or {out}"
        yield f"holds dates ('{first}')", told, prepare != "own"
        return
    if kind == "mixed":
        words = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
        told = f"holds numbers and text ('{str(words.iloc[0])[:20]}')"
        remedy = f"leave such cells empty, or say --categories {quote(str(column.name))}"
        yield told, remedy, prepare != "own"
        return
    different = int(column.nunique())
    if kind == "category":
        yield from _words(column, different, out, raw, prepare)
    elif raw and column.dtype.kind not in "iuf":
        yield "is not numeric", f"make it numbers, or {out}", True
    if kind == "number" and column.dtype.kind == "f" and bool(np.isinf(column).any()):
        yield "has infinite values", "leave such cells empty", True
    if different == 1:
        yield f"is always {str(column.dropna().iloc[0])[:20]}", f"it says nothing, {out}", False


def _words(
    column: pd.Series[Any], different: int, out: str, raw: bool, prepare: str
) -> Iterator[tuple[str, str, bool]]:
    name, first = column.name, str(column.dropna().iloc[0])[:20]
    if raw and column.dtype.kind != "b":
        remedy = f"encode it first, as in pd.get_dummies(df, columns=['{name}']), or take prepare="
        yield f"is not numeric: text ('{first}')", remedy + "'federated'", True
    elif different > MOST_WORDS and prepare != "own":
        told = f"has {different:,} different words ('{first}')"
        yield told, f"if these are names or notes, {out}; else make groups of them", True
    elif prepare not in ("own", "none") and column.dtype.kind != "b":
        known = column.dropna().astype(str)
        if known.str.fullmatch(COMMA).all() and known.str.contains(",").any():
            remedy = f"write them with a point, or {out}"
            yield f"holds numbers with a decimal comma ('{_with_comma(known)}')", remedy, True
        elif different > 1:
            yield f"is text ('{first}')", f"its {different} words become inputs of 0 and 1", False
    alike = _alike(column)
    if alike and different <= MOST_WORDS:
        told = f"{ALIKE} ({', '.join(map(repr, alike))})"
        yield told, "make them one word, or each is an input of its own", False


def _with_comma(known: pd.Series[Any]) -> str:
    return str(known[known.str.contains(",")].iloc[0])[:20]


def _alike(column: pd.Series[Any]) -> list[str]:
    """Return words of a column that are one word to whoever reads them aloud."""
    if column.dtype.kind in "biufM":
        return []
    words = pd.Series(sorted(column.dropna().astype(str).unique()), dtype=object)
    plain = words.str.strip().str.casefold()
    twice = words[plain.duplicated(keep=False) & (plain == plain[plain.duplicated()].min())]
    return [str(word)[:20] for word in twice[:SHOWN]]


def federation(made: Examples) -> Iterator[Finding]:
    """Tell of clients and classes, and of inputs that nobody scaled."""
    sizes = made.sizes().drop(columns="client").to_numpy().sum(axis=1)
    single = [made.names[k] for k in np.flatnonzero(sizes == 1)]
    if single:
        told = "has one example" if len(single) == 1 else "have one example each"
        yield Finding(_clients(single), told, "it trains and is never judged: collect more")
    if made.kind == "classes":
        yield from _classes(made)
    if (
        made.preparation is None
        and not made.fields
        and len(made.shape) == 1
        and made.shape[0] <= WIDEST
    ):
        x = made.train.x
        lowest, highest = torch.aminmax(x, dim=0)
        constant = np.flatnonzero((lowest == highest).numpy())
        spread = _spread(x)
        spread[constant] = 0
        if 0 < len(constant) < len(spread) and len(made.train) > 1:
            what = f"{'is' if len(constant) == 1 else 'are'} the same in all training examples"
            yield Finding(_listed("input", constant), what, "leave out what says nothing")
        scales = {f"input {k}": float(spread[k]) for k in range(len(spread)) if spread[k] > 0}
        yield from _scales(scales, "subtract the mean and divide by the deviation")


def _spread(x: torch.Tensor) -> npt.NDArray[np.float64]:
    """Return the deviation of each input, some columns at a time: copies are kept small."""
    blocks = torch.split(x, AT_ONCE, dim=1)
    return torch.cat([b.to(torch.float64).std(dim=0, correction=0) for b in blocks]).numpy()


def _classes(made: Examples) -> Iterator[Finding]:
    counts = made.label_counts()
    table = counts.to_numpy()
    total = table.sum(axis=0)
    names = [f"'{name}'" for name in counts.columns]
    have = np.flatnonzero(total)
    if len(have) == 1:
        told = f"is always {names[have[0]]}"
        yield Finding("the target", told, "there is nothing to learn: name another target")
        return
    gone = [names[k] for k in np.flatnonzero(total == 0)]
    if gone:
        what = f"never is {_some(gone)} of 0 to {made.outputs - 1}"
        yield Finding("the target", what, "number the classes without gaps, or name them by words")
    lacking = np.flatnonzero((table[:, have] == 0).any(axis=1))
    if len(lacking):
        lists = [[names[c] for c in have if not table[k, c]] for k in lacking[:SHOWN]]
        some = [f"{made.names[k]} {_some(gone)}" for k, gone in zip(lacking, lists, strict=False)]
        more = f"; and {len(lacking) - SHOWN} others" if len(lacking) > SHOWN else ""
        what = f"lack classes ({'; '.join(some)}{more})"
        if len(lacking) == 1:
            what = f"has no {_some(lists[0])}"
        remedy = "judge clients by loss rather than accuracy"
        yield Finding(_clients([made.names[k] for k in lacking]), what, remedy)


def _scales(scales: Mapping[str, float], remedy: str) -> Iterator[Finding]:
    known = {name: scale for name, scale in scales.items() if scale > 0}
    if not known:
        return
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    apart = known[high] / known[low]
    if apart >= APART:
        where = f"the scales of {_quoted(low)} and {_quoted(high)}"
        yield Finding(where, f"are {apart:,.0f} times apart", f"bring them together: {remedy}")


def _scale(column: pd.Series[Any]) -> float:
    spread = float(pd.to_numeric(column, errors="coerce").std(ddof=0))
    return spread if np.isfinite(spread) else 0.0


def short(findings: Iterable[Finding], limit: int = 6) -> list[str]:
    """Return a line a finding, the first ``limit`` of each kind of words."""
    lines = [str(finding) for finding in findings]
    more = [f"and {len(lines) - limit} more: see 'fedparity check'"] if len(lines) > limit else []
    return lines[:limit] + more


def _clients(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"client '{names[0]}'"
    return f"{len(names)} clients" if len(names) > SHOWN else f"clients {', '.join(names)}"


def _listed(what: str, places: Sequence[int] | Any) -> str:
    told = ", ".join(str(place) for place in places[:SHOWN])
    more = f" and {len(places) - SHOWN} others" if len(places) > SHOWN else ""
    return f"{what}{'s' if len(places) > 1 else ''} {told}{more}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} others" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"input \d+", name) else f"'{name}'"
