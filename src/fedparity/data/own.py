"""A transformer of the user's own in place of the library's preparation of columns.

It is code, which a run does not keep: what is written down is the import path that makes it, and of
its outputs on the training examples the means and deviations. Where it is needed again, it is made
by that path, fitted again on the table that the run names by its sha256, and held against them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from fedparity import imports, spec
from fedparity.errors import InputError
from fedparity.imports import Allowed, ImportPath

Finite = Annotated[float, Field(allow_inf_nan=False)]
ALIKE = 1e-6
"""Relative difference of means and deviations up to which two fits are the same."""


@runtime_checkable
class Transformer(Protocol):
    """What scikit-learn calls a transformer."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from the training examples of all clients, a DataFrame."""

    def transform(self, X: Any) -> Any:
        """Return numbers, a row an example."""


class Coded(NamedTuple):
    """A transformer that is not fitted yet, and the text that makes it."""

    made: Transformer
    code: str


@checked(frozen=True, config=ConfigDict(extra="forbid"))
class OwnPage:
    """What the file of a preparation says of a transformer of the user's own."""

    how: Literal["own"]
    code: str
    reads: Annotated[tuple[str, ...], Field(min_length=1)]
    outputs: Annotated[tuple[str, ...], Field(min_length=1)]
    means: tuple[Finite, ...]
    deviations: tuple[Finite, ...]
    client: str | None
    target: str | None
    classes: tuple[str, ...]
    format: Literal[1] = 1


@dataclass(frozen=True, eq=False)
class Own:
    """A transformer of the user's: what it reads and makes, and it itself where it is at hand.

    Parameters
    ----------
    code
        The import path that makes it.
    reads
        The columns that it takes, in their order.
    outputs
        The names of the inputs that it makes.
    means, deviations
        Of these over the training examples.
    fitted
        The transformer; None of a run that was read from its directory.
    """

    code: str
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    fitted: Any = None

    @classmethod
    def fit(cls, given: Coded, train: pd.DataFrame) -> Own:
        """Return a copy of the transformer, fitted on training examples."""
        from sklearn.base import clone

        cloned = clone(given.made) if hasattr(given.made, "get_params") else None
        fitted = copy.deepcopy(given.made) if cloned is None else cloned
        fitted.fit(train)
        made = _numbers(fitted.transform(train)).astype(np.float64)
        return cls(
            given.code,
            tuple(map(str, train.columns)),
            _names(fitted, made.shape[1]),
            tuple(made.mean(axis=0).tolist()),
            tuple(made.std(axis=0).tolist()),
            fitted,
        )

    def transform(self, df: pd.DataFrame) -> npt.NDArray[Any]:
        """Return the inputs of a table's rows."""
        if self.fitted is None:
            raise InputError(
                f"the columns were prepared by code, '{self.code}', which is not here: give the "
                "federation's preparation (preparation=), or see predict"
            )
        return _numbers(self.fitted.transform(df[list(self.reads)]))

    def require_same(self, other: Own) -> None:
        """Refuse another fit of the transformer that does something else."""
        same = self.reads == other.reads and self.outputs == other.outputs
        for mine, theirs in ((self.means, other.means), (self.deviations, other.deviations)):
            same = same and np.allclose(mine, theirs, rtol=ALIKE, atol=ALIKE)
        if not same:
            raise InputError(
                f"'{self.code}' does not do again what it did in the run: take the code of then, "
                "and give it a seed where it draws by chance"
            )


def is_code(prepare: object) -> bool:
    """Tell whether a way to prepare is named by an import path.

    >>> [is_code(text) for text in ("federated", "given.json", "mypackage.columns:banded(width=5)")]
    [False, False, True]
    """
    if not isinstance(prepare, str) or prepare.lower().endswith(".json"):
        return False
    return ImportPath.read(prepare) is not None


def make(text: str, allowed: Allowed) -> Coded:
    """Return the transformer that an import path makes, if it is allowed."""
    term = spec.parse_one(text)
    code: Callable[..., Any] = imports.look_up("preparation", term, {}, allowed, Transformer)
    made = spec.call(term.name, code, term.settings)
    if not isinstance(made, Transformer):
        raise InputError(f"'{term.name}' made a {type(made).__name__}: it needs fit and transform")
    return Coded(made, imports.complete(code, term))


def coded(given: Transformer) -> Coded:
    """Return a transformer with the text that makes it, or one that only its program knows."""
    settings = given.get_params(deep=False) if hasattr(given, "get_params") else None
    return Coded(given, imports.text_of(given, settings))


def _names(fitted: Any, width: int) -> tuple[str, ...]:
    """Return the names of what a transformer makes, numbered where it tells none."""
    names: Sequence[Any] = ()
    with suppress(AttributeError, ValueError):  # scikit-learn's words for "it tells none"
        names = fitted.get_feature_names_out()
    return tuple(map(str, names)) if len(names) == width else tuple(f"x{k}" for k in range(width))


def _numbers(found: Any) -> npt.NDArray[Any]:
    made = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    if made.dtype.kind not in "biuf":
        raise InputError(
            f"the transformer returns {made.dtype} where numbers are expected: encode every column"
        )
    if made.ndim != 2:
        raise InputError(f"the transformer returns {made.shape} where a row an example is expected")
    return np.asarray(made)
