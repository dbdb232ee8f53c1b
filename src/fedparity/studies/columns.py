"""What a column of a packaged table is: a number of each run.

In a table's file a column is the name of a summary of the final model, or its settings::

    columns:
      mean: mean_accuracy
      mean, last 20: {of: mean_accuracy, last: 20}
      best round: {of: accuracy_variance, best: mean_accuracy}
      rounds to 80 %: {of: mean_accuracy, target: 80}
      gain: {of: gains}
      shirt: {of: client_accuracy, client: client-0}
      lambda lowered: {of: told, number: eagle.capped_share}
      norm of the last layer: {of: gradient_norm, layer: -1}
      McNemar p: {of: mcnemar, against: FedAvg}
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity.certainty import GAINS, PAYS
from fedparity.errors import InputError, unknown
from fedparity.metrics import SUMMARIES, rounds_to_target
from fedparity.metrics.vectors import Direction
from fedparity.records.result import Result
from fedparity.spec import call

OWN: Mapping[str, tuple[str, ...]] = {
    "gains": (),
    "pays": (),
    "client_accuracy": ("client", "split"),
    "told": ("number", "last"),
    "gradient_norm": ("layer", "over"),
    "mcnemar": ("against", "split"),
}
"""What a column may be of beside the summaries, and its settings."""
OF_SUMMARIES = ("split", "last", "best", "at", "target", "stay")
FROM_HISTORY = ("accuracy", "loss", "gap")
"""What is known of every client at every evaluation."""
VERDICTS = {"gains": GAINS, "pays": PAYS}
Over = Literal["mean", "variance", "max"]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Column:
    """A number of each run.

    Parameters
    ----------
    of
        A summary of the clients; ``gains`` or ``pays``, how many certainly do; ``client_accuracy``,
        of one client, in percent; ``told``, a number that a part told; ``gradient_norm``, of the
        gradients at the final model; or ``mcnemar``, the p-value of McNemar's test.
    split
        Whose examples.
    last
        The mean over so many last evaluations (of what is told: rounds) in place of the final
        model; of what is told, by default over all.
    best
        At the evaluation at which this other summary is best on the same split.
    at
        At this round, which must have been evaluated, in place of the final model.
    target
        How many rounds until the summary reaches this, in its own unit.
    stay
        How many evaluations in a row must reach the target.
    client
        Which client's accuracy.
    number
        What is told, as ``part.number``.
    layer
        A place among the layers, -1 the last; by default the mean over all.
    over
        Of the layer's norms over the clients.
    against
        The algorithm whose predictions on the same examples are the other side of the test.
    """

    of: str
    split: Literal["validation", "test"] = "test"
    last: int | None = Field(default=None, ge=1)
    best: str | None = None
    at: int | None = Field(default=None, ge=0)
    target: float | None = None
    stay: int = Field(default=1, ge=1)
    client: str | None = None
    number: str | None = None
    layer: int | None = None
    over: Over = "mean"
    against: str | None = None

    def __post_init__(self) -> None:
        allowed = OWN.get(self.of, OF_SUMMARIES)
        if self.of not in OWN and self.of not in SUMMARIES:
            raise unknown("summary of a column", self.of, [*SUMMARIES, *OWN])
        for name, setting in inspect.signature(Column).parameters.items():
            if name not in ("of", *allowed) and getattr(self, name) != setting.default:
                raise InputError(f"a column of '{self.of}' has no '{name}'")
        if self.best is not None and self.best not in SUMMARIES:
            raise unknown("summary", self.best, SUMMARIES)
        ways = ("last", "best", "at", "target")
        asked = [name for name in ways if getattr(self, name) is not None]
        if len(asked) > 1:
            raise InputError(f"a column has one of {' and '.join(asked)}, not both")
        for summary in {self.of, self.best or self.of} & set(SUMMARIES) if asked else ():
            if SUMMARIES[summary].column not in FROM_HISTORY:
                raise InputError(f"'{summary}' is not known at every evaluation")
        if self.of == "told" and (self.number is None or "." not in self.number):
            raise InputError("a column of 'told' names a part's number: number: eagle.lam")
        if self.of == "client_accuracy" and self.client is None:
            raise InputError("a column of 'client_accuracy' names a client: client: client-0")
        if self.of == "mcnemar" and self.against is None:
            raise InputError("a column of 'mcnemar' names an algorithm: against: FedAvg")

    @property
    def better(self) -> Direction | None:
        """Which direction is better."""
        if self.target is not None:
            return "lower"
        return SUMMARIES[self.of].better if self.of in SUMMARIES else None

    def value(self, result: Result) -> float:
        """Return the number of a run, of all but ``gradient_norm`` and ``mcnemar``."""
        if self.of in VERDICTS:
            verdicts = result.verdicts
            return float(
                (verdicts["verdict"] == VERDICTS[self.of]).sum() if len(verdicts) else "nan"
            )
        if self.of == "told":
            return self._told(result)
        if self.of == "client_accuracy":
            clients = result.clients.set_index("client")[f"{self.split}_accuracy"]
            return 100 * float(clients.get(self.client, np.nan))
        if self.target is None and self.best is None and self.at is None and self.last is None:
            return float(result.summary(self.split).get(self.of, np.nan))
        evaluations = Evaluations(result, self.split)
        values = evaluations.of(self.of)
        if self.target is not None:
            reached = rounds_to_target(
                values.tolist(),
                self.target,
                rounds=evaluations.rounds,
                better=SUMMARIES[self.of].better or "higher",
                stay=self.stay,
            )
            return float("nan") if reached is None else float(reached)
        if self.at is not None:
            rounds = evaluations.rounds
            return float(values[rounds.index(self.at)]) if self.at in rounds else float("nan")
        if self.best is not None:
            decisive = evaluations.of(self.best)
            lower = SUMMARIES[self.best].better == "lower"
            return float(values[np.nanargmin(decisive) if lower else np.nanargmax(decisive)])
        return float(values[-(self.last or 1) :].mean())

    def _told(self, result: Result) -> float:
        part, _, number = str(self.number).partition(".")
        told = result.told
        rows = told[(told["part"] == part) & (told["number"] == number)]
        each = rows.groupby("round")["value"].mean()
        return float(each.iloc[-self.last :].mean() if self.last else each.mean())


class Evaluations:
    """A run's summaries at every evaluation, of the models that clients would really use."""

    def __init__(self, result: Result, split: str) -> None:
        self.result, self.split = result, split
        rows = result.history[result.history["split"] == split]
        own = "personal" if (rows["model"] == "personal").any() else "global"
        self._rows = rows[rows["model"] == own]

    @cached_property
    def rounds(self) -> list[int]:
        """The rounds that were evaluated."""
        return [int(round) for round in np.unique(self._rows["round"])]

    def of(self, summary: str) -> Numbers:
        """Return a summary at every evaluation."""
        found = SUMMARIES[summary]
        metric = "accuracy" if found.column == "accuracy" else "loss"
        rows = self._rows[self._rows["metric"] == metric]
        wide, sizes = (
            rows.pivot(index="round", columns="client", values=name) for name in ("value", "n")
        )
        values, n = wide.to_numpy(np.float64), sizes.to_numpy(np.float64)
        kept = n[-1] > 0 if len(n) else np.zeros(n.shape[1], bool)
        if found.column == "gap":
            clients = self.result.clients.assign(client=lambda c: c["client"].astype(str))
            lstar = clients.set_index("client")[f"{self.split}_lstar"].reindex(wide.columns)
            values, kept = values - lstar.to_numpy(), kept & lstar.notna().to_numpy()
        if found.column == "accuracy":
            values = 100 * values
        return np.array([found.statistic(v[kept], m[kept]) for v, m in zip(values, n, strict=True)])


def column(told: Any) -> Column:
    """Return the column that a table's file tells: a summary's name, or a table of settings."""
    if isinstance(told, str):
        return call("column", Column, {"of": told})
    if not isinstance(told, Mapping):
        raise InputError(f"a column is a summary or a table of settings, got {told!r}")
    return call("column", Column, dict(told))
