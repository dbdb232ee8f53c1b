"""A metric: one number of a client from all its targets and outputs, by name or one's own."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedparity.arguments import named
from fedparity.errors import InputError, unknown
from fedparity.imports import Allowed, ImportPath, find
from fedparity.metrics import quality
from fedparity.metrics.concordance import c_index
from fedparity.metrics.vectors import Direction

Function = Callable[[npt.NDArray[Any], npt.NDArray[np.float64]], float]
RESERVED = ("loss", "accuracy", "error", "gap", "lstar", "n")
"""Numbers that clients have anyhow."""


class Meaning(NamedTuple):
    """What a run's record tells of a metric, so that its numbers can be read without its code."""

    better: Direction
    definition: str = ""
    undefined: str = "it is not defined on the examples"
    """Why a client may have none."""


@named
@dataclass(frozen=True)
class Metric:
    """A number of a client: a function of its targets and of what the model says of them.

    Parameters
    ----------
    function
        ``(target, output) -> float``, with the targets ``[n]`` of all examples of one client in a
        split, and the model's outputs for them in float64: the probability of each class
        ``[n, C]`` in a classification, values ``[n]`` in a regression. Where it returns NaN or
        fails with an exception, the client has no such number.
    better
        ``"higher"`` or ``"lower"``: which direction is better.
    name
        What columns and summaries are called by; by default the function's own name.
    definition
        One line for tables and reports; by default the first line of the docstring.
    undefined
        Why a client may have no such number.
    lowest, highest
        Between which numbers it lies; what a site of a real federation sends beyond is refused.
    of
        What the targets must be: ``"classes"``, ``"values"``, ``"survival"``, or anything.

    Examples
    --------
    >>> def bias(target, output):
    ...     return float((output - target).mean())
    >>> metric = Metric(bias, better="lower")
    >>> metric.name, metric(np.array([1.0, 2.0]), np.array([1.5, 2.5]))
    ('bias', 0.5)
    """

    function: Function
    better: Direction
    name: str = ""
    definition: str = ""
    undefined: str = Meaning._field_defaults["undefined"]
    lowest: float = -math.inf
    highest: float = math.inf
    of: Literal["classes", "values", "survival"] | None = None

    def __post_init__(self) -> None:
        if self.better not in ("higher", "lower"):
            raise InputError(f"better is {self.better!r}: say 'higher' or 'lower'")
        name = self.name or getattr(self.function, "__name__", "")
        if not name.isidentifier() or name in RESERVED or name.startswith(("base_", "alone_")):
            raise InputError(f"a metric cannot be called '{name}': give it another name=")
        lines = (self.definition or self.function.__doc__ or "").strip().splitlines()
        object.__setattr__(self, "name", name)
        told = lines[0].rstrip(".").replace("``", "") if lines else name
        object.__setattr__(self, "definition", told)

    def __call__(self, target: npt.NDArray[Any], output: npt.NDArray[np.float64]) -> float:
        """Return the number of one client; NaN where it is undefined or outputs are not finite."""
        if not len(target) or not np.isfinite(output).all():
            return np.nan
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return float(self.function(target, output))

    @property
    def meaning(self) -> Meaning:
        """What the record tells of it."""
        return Meaning(self.better, self.definition, self.undefined)

    @property
    def text(self) -> str:
        """How an experiment file names it; the name alone where a file cannot find the function."""
        if METRICS.get(self.name) == self:
            return self.name
        home, name = getattr(self.function, "__module__", ""), self.function.__qualname__
        found = getattr(sys.modules.get(home), name, None)
        if home in ("__main__", "builtins") or found is not self.function:
            return self.name
        return f"{home}:{name}(better={self.better})"


ONE_CLASS = "the examples are of one class"
NO_SECOND = "the second class is neither among the examples nor guessed"
NO_PAIR = "of no two of their examples it is known whose event came first"
CONSTANT = "the targets are all the same"
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(quality.auc, "higher", "", "", ONE_CLASS, 0, 1, "classes"),
        Metric(quality.balanced_accuracy, "higher", lowest=0, highest=1, of="classes"),
        Metric(quality.f1, "higher", "", "", NO_SECOND, 0, 1, "classes"),
        Metric(quality.log_loss, "lower", lowest=0, of="classes"),
        Metric(quality.brier, "lower", lowest=0, highest=2, of="classes"),
        Metric(quality.calibration_error, "lower", lowest=0, highest=1, of="classes"),
        Metric(quality.rmse, "lower", lowest=0, of="values"),
        Metric(quality.r2, "higher", "", "", CONSTANT, highest=1, of="values"),
        Metric(quality.mae, "lower", lowest=0, of="values"),
        Metric(c_index, "higher", "", "", NO_PAIR, 0, 1, "survival"),
    )
}
"""The metrics that have a name."""
LOWER = ("loss", "gap", "error", "status_error")
"""What else a run tells of clients of which less is better."""


def direction(name: str, own: Iterable[Metric] = ()) -> Direction:
    """Return which direction of a metric is better, ``own`` ones first; of an unknown one higher.

    >>> direction("brier"), direction("accuracy"), direction("loss")
    ('lower', 'higher', 'lower')
    """
    found = METRICS | {metric.name: metric for metric in own}
    return found[name].better if name in found else "lower" if name in LOWER else "higher"


Asked = str | Metric


def read_metrics(
    asked: Iterable[Asked] | str, allowed: Allowed | None = None
) -> tuple[Metric, ...]:
    """Return the metrics that are asked for, each once; ``allowed`` is the code texts may name.

    Without ``allowed`` the texts are the user's own, and name what they like.
    """
    listed: Sequence[Any] = [asked] if isinstance(asked, str | Metric) else list(asked)
    found = [_read(each, allowed) for each in listed]
    by_name = {metric.name: metric for metric in found}
    for metric in found:
        if by_name[metric.name] != metric:
            raise InputError(f"two metrics are called '{metric.name}': give one another name=")
    return tuple(by_name.values())


def _read(asked: Any, allowed: Allowed | None) -> Metric:
    if isinstance(asked, Metric):
        return asked
    if not isinstance(asked, str):
        name = getattr(asked, "__name__", "function")
        raise InputError(
            f"metric {asked!r} does not say which direction is better: give "
            f"fp.Metric({name}, better='higher') or 'lower'"
        )
    path = ImportPath.read(asked)
    if path is not None:
        return _imported(path, Allowed.by(named=asked) if allowed is None else allowed)
    asked = asked.strip().lower().replace("-", "_")
    if asked not in METRICS:
        raise InputError(
            f"{unknown('metric', asked, METRICS)}; one of your own is package.module:name"
            "(better=higher), or in Python fp.Metric(function, better='higher')"
        )
    return METRICS[asked]


def _imported(path: ImportPath, allowed: Allowed) -> Metric:
    wrong = path.settings.keys() - {"better"}
    if wrong or "better" not in path.settings:
        raise InputError(
            f"metric '{path}' must say which direction is better, and no more: write "
            f"{path}(better=higher) or {path}(better=lower)"
        )
    better: Any = path.settings["better"]
    return Metric(find(path, allowed, "metric", Metric), better)


def meanings(record: Mapping[str, Any]) -> dict[str, Meaning]:
    """Return what a run's record tells of its metrics."""
    return {str(name): Meaning(**told) for name, told in (record.get("metrics") or {}).items()}


def value_of(metric: Metric, target: npt.NDArray[Any], output: npt.NDArray[np.float64]) -> float:
    """Return a metric's value of one client, NaN with a warning where the function fails."""
    try:
        return metric(target, output)
    except Exception as error:  # a user's function may fail in any way; the run goes on
        told = " ".join(f"{type(error).__name__}: {error}".split())
        warnings.warn(
            f"metric '{metric.name}' fails on the examples of some client, which has none then: "
            f"{told[:200]}",
            stacklevel=2,
        )
        return np.nan
