r"""The numbers of a preparation, from sums that clients send.

A client tells of each column of numbers how many there are, their mean and the sum of squares about
it, and of each column of words how often each occurs. The server adds these up,

.. math:: n = \sum_k n_k, \quad \mu = \frac1n \sum_k n_k \mu_k, \quad
          M = \sum_k M_k + n_k (\mu_k - \mu)^2

and so gets the mean and the deviation of all training examples together, and the words that occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.data.build import natural
from fedparity.data.prepare import Category, Number, Preparation, numbers, words
from fedparity.data.split import Ints
from fedparity.errors import InputError

Floats = npt.NDArray[np.float64]
Whose = Literal["client", "common", "none"]
MOST_LEVELS = 1000
"""Different words of one column."""


@dataclass(frozen=True)
class Sums:
    """What clients tell of a column of numbers, ``[K]`` each.

    Parameters
    ----------
    n, missing
        How many numbers there are, and how many gaps.
    mean, squares
        Their mean, and the sum of squares about it.
    """

    n: Floats
    missing: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, values: Floats, owner: Ints, clients: int) -> Sums:
        """Return what clients tell of their rows."""
        known = ~np.isnan(values)
        own, told = owner[known], values[known]
        n = np.bincount(own, minlength=clients).astype(np.float64)
        mean = np.bincount(own, told, clients) / np.maximum(n, 1)
        squares = np.bincount(own, (told - mean[own]) ** 2, clients).astype(np.float64)
        missing = np.bincount(owner[~known], minlength=clients).astype(np.float64)
        return cls(n, missing, mean.astype(np.float64), squares)

    @property
    def together(self) -> tuple[float, float, float]:
        """How many numbers all have together, their mean and squares about it."""
        n = float(self.n.sum())
        mean = float(self.n @ self.mean) / max(n, 1)
        return n, mean, float(self.squares.sum() + self.n @ (self.mean - mean) ** 2)

    def filled(self, fill: Floats) -> Sums:
        """Return the sums after every gap of client k became ``fill[k]``."""
        n = self.n + self.missing
        mean = (self.n * self.mean + self.missing * fill) / np.maximum(n, 1)
        about = self.n * (self.mean - mean) ** 2 + self.missing * (fill - mean) ** 2
        return Sums(n, 0 * n, mean, self.squares + about)


def fit(
    df: pd.DataFrame,
    kinds: Mapping[str, str],
    owner: Ints,
    names: Sequence[str],
    how: str = "federated",
    **told: Any,
) -> Preparation:
    """Return the preparation of these training examples.

    Parameters
    ----------
    df
        Rows of training examples.
    kinds
        ``number`` or ``category`` of each column to be prepared.
    owner, names
        The client of each row, as a place in the names.
    how
        ``federated`` or ``client``: whose numbers fill gaps and scale.
    """
    whose = whose_of(how)
    rules = [
        number(name, numbers(df[name]), owner, len(names), whose, whose)
        if kind == "number"
        else category(name, words(df[name]), owner, len(names), whose)
        for name, kind in kinds.items()
    ]
    return together(rules, names, how, **told)


def whose_of(how: str) -> Whose:
    """Return whose numbers fill gaps and scale in a way to prepare."""
    return "client" if how == "client" else "common"


def together(
    rules: Sequence[tuple[Number | Category, list[Number | Category]]],
    names: Sequence[str],
    how: str,
    **told: Any,
) -> Preparation:
    """Return the preparation of what is done with each column, for all and for each client."""
    own = zip(*(each for _, each in rules), strict=True)
    clients = dict(zip(names, own, strict=True)) if how == "client" else {}
    return Preparation(how, tuple(usual for usual, _ in rules), clients, **told)


def number(
    name: str,
    values: Floats,
    owner: Ints,
    clients: int,
    fill: Whose,
    scale: Whose,
    median: bool = False,
) -> tuple[Number, list[Number | Category]]:
    """Return what is done with a column of numbers, for all and for each client.

    ``median=True`` fills gaps with the median, which is no sum: only where all rows are at hand.
    """
    sums, gaps = Sums.of(values, owner, clients), None
    if median:
        usual = _median(values, sums.together[1])
        own = np.full(clients, usual)
        if fill == "client":
            own = np.array([_median(values[owner == k], usual) for k in range(clients)])
        gaps = usual, own
    return number_of(name, sums, fill, scale, gaps)


def number_of(
    name: str, sums: Sums, fill: Whose, scale: Whose, gaps: tuple[float, Floats] | None = None
) -> tuple[Number, list[Number | Category]]:
    """Return what is done with a column of which clients tell these sums.

    ``gaps`` fills gaps instead of the means: of all, and of each client.
    """
    clients = len(sums.n)
    usual = sums.together[1]
    own = np.where((sums.n > 0) & (fill == "client"), sums.mean, usual)
    if gaps is not None:
        usual, own = gaps
    filled = sums.filled(own)
    n, mean, squares = sums.filled(np.full(clients, usual)).together
    if scale == "common" and fill == "client":
        n, mean, squares = filled.together
    spread = _spread(np.array([squares]), np.array([n]), np.array([mean]))[0]
    if scale == "none":
        mean, spread = 0.0, 1.0
    means, spreads = np.full(clients, mean), np.full(clients, spread)
    if scale == "client":
        means, spreads = filled.mean, _spread(filled.squares, filled.n, filled.mean)
    each: list[Number | Category] = [
        Number(name, float(own[k]), float(means[k]), float(spreads[k])) for k in range(clients)
    ]
    return Number(name, float(usual), float(mean), float(spread)), each


def category(
    name: str,
    column: pd.Series[Any],
    owner: Ints,
    clients: int,
    fill: Whose,
    levels: Sequence[str] | None = None,
    first: bool | None = None,
) -> tuple[Category, list[Number | Category]]:
    """Return what is done with a column of words, for all and for each client.

    The levels are those that any client has, unless they are given.
    """
    codes, found = pd.factorize(column)
    texts = [str(word) for word in found]
    known = levels_of(name, texts if levels is None else levels)
    place = np.array([known.index(text) for text in texts], dtype=np.int64)
    told = codes >= 0
    cell = owner[told] * len(known) + place[codes[told]]
    counts = np.bincount(cell, minlength=clients * len(known)).reshape(clients, len(known))
    return category_of(name, known, counts, fill, first)


def levels_of(name: str, words: Iterable[str]) -> list[str]:
    """Return the levels of a column in natural order, if they are not too many."""
    known = sorted(words, key=natural)
    if len(known) > MOST_LEVELS:
        raise InputError(
            f"column '{name}' has {len(known):,} different words, too many to encode: leave it out "
            f"(--without {name}) or make groups of them"
        )
    return known or ["missing"]


def category_of(
    name: str, levels: Sequence[str], counts: Ints, fill: Whose, first: bool | None = None
) -> tuple[Category, list[Number | Category]]:
    """Return what is done with a column whose levels occur so often, ``[K, levels]``.

    A gap becomes the most frequent word, of several the first in natural order.
    """
    usual = levels[int(counts.sum(axis=0).argmax())]
    lead = len(levels) != 2 if first is None else first
    each: list[Number | Category] = [
        Category(
            name,
            tuple(levels),
            levels[int(row.argmax())] if fill == "client" and row.any() else usual,
            lead,
        )
        for row in counts
    ]
    return Category(name, tuple(levels), usual, lead), each


def _spread(squares: Floats, n: Floats, mean: Floats) -> Floats:
    """Return the deviation; 1 where nothing deviates, but for rounding."""
    deviation = np.sqrt(squares / np.maximum(n, 1))
    return np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def _median(values: Floats, otherwise: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else otherwise
