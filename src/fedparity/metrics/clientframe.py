"""The clients of a federation, one row each, and the summaries that are views of these rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
import pandas as pd

from fedparity.arguments import named
from fedparity.errors import InputError, unknown
from fedparity.metrics.gaps import LevellingDown, Pareto, levelling_down, loss_gap, pareto
from fedparity.metrics.metric import METRICS, Meaning
from fedparity.metrics.summaries import Column, Split, Summary, summaries
from fedparity.metrics.vectors import Direction, FloatArray

SPLITS: tuple[Split, ...] = get_args(Split)
ROUNDING = 1e-6
COUNTED = tuple(f"n_{split}" for split in SPLITS)
BETTER: dict[Column, Direction] = {"accuracy": "higher", "loss": "lower", "gap": "lower"}
UNDEFINED = "undefined "


@dataclass(frozen=True)
class Comparison:
    """How the clients fare against a baseline.

    Attributes
    ----------
    pareto
        Shares of the clients better, worse and equally well off.
    levelling
        Whether gaps were made equal by harming the best client; None if no client has a loss gap.
    clients
        How many clients were compared.
    """

    pareto: Pareto
    levelling: LevellingDown | None
    clients: int


@named
class ClientFrame:
    """One row a client first; every aggregate is a view of the rows.

    Parameters
    ----------
    by_client
        Columns ``client`` (a name), ``n_train``, ``n_validation``, ``n_test``, and whichever of
        ``{train,validation,test}_loss``, ``{validation,test}_accuracy`` (fractions),
        ``{validation,test}_lstar`` and ``{validation,test}_gap`` there are. A gap column that is
        missing is computed where loss and L* are given. Other columns are kept as they are.
    metrics
        What further columns ``{validation,test}_{name}`` mean that are metrics of one's own; those
        of :data:`~fedparity.metrics.METRICS` are known.
    alone
        Whether each client trained alone. Nobody joined then, and what joining gains
        (``gain_share``, ``mean_benefit``) is not defined.

    Notes
    -----
    A client without examples in a split has no numbers there: it is left out of the summaries of
    that split and counted in ``clients_without_test``. So is, from the summaries of gaps, a client
    whose L* is not known (``clients_without_lstar``), and from those of a metric one on whose
    examples it is not defined (``clients_without_auc``). A NaN of any other origin, such as a loss
    that diverged, makes the summaries it enters NaN.

    Examples
    --------
    >>> frame = ClientFrame(pd.DataFrame({
    ...     "client": ["a", "b"], "n_train": [30, 10], "n_validation": [5, 5], "n_test": [30, 10],
    ...     "test_accuracy": [0.9, 0.7]}))
    >>> frame.summary()[["mean_accuracy", "pooled_accuracy"]].round(6).to_dict()
    {'mean_accuracy': 80.0, 'pooled_accuracy': 85.0}
    """

    def __init__(
        self,
        by_client: pd.DataFrame,
        *,
        metrics: Mapping[str, Meaning] | None = None,
        alone: bool = False,
    ) -> None:
        if not isinstance(by_client, pd.DataFrame):
            what = type(by_client).__name__
            raise InputError(f"by_client is a {what}: give a table, such as result.clients")
        frame = by_client.reset_index(drop=True)
        missing = [name for name in ("client", *COUNTED) if name not in frame]
        if missing:
            raise InputError(f"a client frame needs the columns {', '.join(missing)}")
        if frame.empty:
            raise InputError("a client frame needs at least one client")
        frame = frame.assign(client=frame["client"].astype(str))
        twice = frame.loc[frame["client"].duplicated(), "client"]
        if not twice.empty:
            raise InputError(f"client '{twice.iloc[0]}' has more than one row")
        for name in COUNTED:
            _check(frame, name, frame[name] >= 0, "numbers of examples are >= 0")
        for name in ("validation_accuracy", "test_accuracy"):
            if name in frame:
                fractions = frame[name].isna() | frame[name].between(0, 1 + ROUNDING)
                _check(frame, name, fractions, "accuracies are fractions in [0, 1]")
        for split in ("validation", "test"):
            loss, lstar, gap = f"{split}_loss", f"{split}_lstar", f"{split}_gap"
            if gap not in frame and {loss, lstar} <= set(frame):
                frame[gap] = loss_gap(frame[loss], frame[lstar])
        self._frame = frame.set_axis(frame["client"].to_list(), axis=0)
        self.alone = alone
        known = {name: metric.meaning for name, metric in METRICS.items()} | dict(metrics or {})
        self.metrics = {
            name: meaning
            for name, meaning in known.items()
            if any(f"{split}_{name}" in frame for split in SPLITS)
        }
        """The metrics of the clients beside loss and accuracy, and what they mean."""

    def __len__(self) -> int:
        return len(self._frame)

    def __repr__(self) -> str:
        return f"ClientFrame of {len(self)} clients\n{self.by_client!r}"

    @property
    def by_client(self) -> pd.DataFrame:
        """One row a client, in the order they were given."""
        return self._frame.reset_index(drop=True)

    @cached_property
    def summaries(self) -> Mapping[str, Summary]:
        """The summaries that there are of such clients, by name."""
        return summaries(self.metrics)

    def summary(self, split: Split = "test") -> pd.Series[float]:
        """Return one number a summary: see :data:`~fedparity.metrics.SUMMARIES`.

        Summaries of a column that the frame does not have are left out (a regression has no
        accuracy); summaries that are not defined are NaN (the sample variance of one client).
        """
        _check_name("split", split, SPLITS)
        wanted = {
            name: summary
            for name, summary in self.summaries.items()
            if self._has(summary.column, summary.of or split) and summary.split in (None, split)
        }
        # Many summaries are of the same column.
        asked = {(s.column, s.of or split) for s in wanted.values()}
        read = {each: self._arrays(*each) for each in asked}
        with np.errstate(invalid="ignore", over="ignore"):
            values = {
                name: np.nan
                if self.alone and s.joining
                else s.statistic(*read[s.column, s.of or split])
                for name, s in wanted.items()
            }
        return pd.Series(values, name=split, dtype=np.float64)

    def worst(
        self, count: int = 1, *, by: Column | None = None, split: Split = "test"
    ) -> pd.DataFrame:
        """Return the rows of the worst clients, the worst first.

        They are ordered by accuracy where there is one, else by loss, unless ``by`` says
        otherwise. Clients left out of the summaries are never among them.
        """
        _check_name("split", split, SPLITS)
        _check_number("count", count)
        order = by or ("accuracy" if f"{split}_accuracy" in self._frame else "loss")
        better = self._better(order)
        numbers = self._numbers(order, split)
        # A loss that is not a number comes from a model that failed: nothing is worse.
        worst_first = numbers.sort_values(
            ascending=better == "higher", kind="stable", na_position="first"
        )
        return self._frame.loc[worst_first.index[:count]].reset_index(drop=True)

    def few(self, threshold: int, *, split: Split = "test") -> pd.DataFrame:
        """Return the rows of the clients with fewer than ``threshold`` examples in the split.

        The standard error of an accuracy is up to ``50 / sqrt(n)`` percent, 10 with 25 examples.
        """
        _check_name("split", split, SPLITS)
        _check_number("threshold", threshold)
        return self._frame[self._frame[f"n_{split}"] < threshold].reset_index(drop=True)

    def compare(
        self,
        baseline: ClientFrame,
        *,
        by: Column = "loss",
        split: Split = "test",
        tol: float = 0.0,
    ) -> Comparison:
        """Compare with a baseline, usually FedAvg, on the same clients (matched by name).

        Parameters
        ----------
        by
            The number by which a client is better or worse off.
        tol
            Differences up to this size count as equal.
        """
        _check_name("split", split, SPLITS)
        if not isinstance(baseline, ClientFrame):
            raise InputError("baseline is no client frame: give that of a result, result.frame")
        better = self._better(by)
        strangers = sorted(set(self._frame.index) ^ set(baseline._frame.index))
        if strangers:
            raise InputError(f"client '{strangers[0]}' is in one of the two frames only")
        with np.errstate(invalid="ignore", over="ignore"):
            ours, theirs = self._beside(baseline, by, split)
            shares = pareto(ours, theirs, better=better, tol=tol)
            levelling = None
            if all(f"{split}_gap" in frame._frame for frame in (self, baseline)):
                gaps = self._beside(baseline, "gap", split)
                levelling = levelling_down(*gaps) if len(gaps[0]) else None
        return Comparison(shares, levelling, len(ours))

    def _beside(
        self, other: ClientFrame, column: Column, split: Split
    ) -> tuple[pd.Series[float], pd.Series[float]]:
        """Return a column of both frames, client by client, of the clients that have it in both."""
        ours, theirs = self._numbers(column, split), other._numbers(column, split)
        shared = ours.index.intersection(theirs.index, sort=False)
        return ours.loc[shared], theirs.loc[shared]

    def _numbers(self, column: Column, split: Split) -> pd.Series[float]:
        """Return a column without the clients that have no number there (accuracy in percent)."""
        if not self._has(column, split):
            raise InputError(f"this client frame has no column {self._column(column, split)}")
        numbers = self._frame[self._column(column, split)].astype(np.float64)
        if column == "n":
            return numbers
        kept = self._frame[f"n_{split}"] > 0
        if column.removeprefix(UNDEFINED) in self.metrics:
            # Undefined it is of a sound model; the outputs of another have no finite loss either.
            missing = numbers.isna()
            if f"{split}_loss" in self._frame:
                missing &= np.isfinite(self._frame[f"{split}_loss"].astype(np.float64))
            if column.startswith(UNDEFINED):
                return missing[kept].astype(np.float64)
            kept &= ~missing
        if column == "gap" and f"{split}_lstar" in self._frame:
            kept &= self._frame[f"{split}_lstar"].notna()
        return numbers[kept] * 100 if column == "accuracy" else numbers[kept]

    def _arrays(self, column: Column, split: Split) -> tuple[FloatArray, FloatArray]:
        """Return a column's numbers, and the examples of the clients that have one."""
        numbers = self._numbers(column, split)
        examples = self._frame.loc[numbers.index, f"n_{split}"]
        return np.asarray(numbers), np.asarray(examples, np.float64)

    def _better(self, column: Column) -> Direction:
        _check_name("order of clients", column, (*BETTER, *self.metrics))
        return BETTER[column] if column in BETTER else self.metrics[column].better

    def _has(self, column: Column, split: Split) -> bool:
        return self._column(column, split) in self._frame

    @staticmethod
    def _column(column: Column, split: Split) -> str:
        return f"n_{split}" if column == "n" else f"{split}_{column.removeprefix(UNDEFINED)}"


def summary_value(frame: ClientFrame, name: str, *, split: Split = "test") -> float:
    """Return one summary of a frame by its name; a wrong name gives the nearest valid one.

    A summary of a column that the frame does not have is an error here: whoever asks for the worst
    accuracy of a regression must hear of it.
    """
    _check_name("split", split, SPLITS)
    _check_name("summary", name, frame.summaries)
    summary = frame.summaries[name]
    if summary.split not in (None, split):
        raise InputError(f"{name} is a summary of the {summary.split} split, not of {split}")
    if not frame._has(summary.column, summary.of or split):
        column = frame._column(summary.column, summary.of or split)
        raise InputError(f"{name} needs the column {column}")
    if frame.alone and summary.joining:
        raise InputError(f"{name} is about joining, and each of these clients trained alone")
    with np.errstate(invalid="ignore", over="ignore"):
        return summary.statistic(*frame._arrays(summary.column, summary.of or split))


def _check_name(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise unknown(kind, name, known)


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, int | np.integer):
        raise InputError(f"{name} is {number!r}: give a whole number")


def _check(frame: pd.DataFrame, column: str, valid: pd.Series[bool], rule: str) -> None:
    """Refuse the first value that is not valid, by the name of its client."""
    if not valid.all():
        first = frame[~valid].iloc[0]
        raise InputError(f"{column} of client '{first['client']}' is {first[column]:g}: {rule}")
