"""The settings to search: ``solver.lr`` from ``0.01..1 log``, ``eagle.lam`` among ``0.5,1,2``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fedparity.errors import InputError, unknown
from fedparity.learning.solver import Solver
from fedparity.run.conditions import Conditions
from fedparity.run.experiment import Experiment
from fedparity.spec import Spec, parse, split_list
from fedparity.tuning.aim import NUMBER

if TYPE_CHECKING:
    from optuna.trial import Trial

RANGE = re.compile(rf"\s*({NUMBER})\s*\.\.\s*({NUMBER})(\s+log)?\s*")
FREE = ("server_lr", "cohort", "weighting")
"""Conditions of a run that may be searched beside ``solver.*`` and settings of parts."""
Value = float | int | str


@dataclass(frozen=True)
class Range:
    """The values of one setting: a range of numbers, or a list."""

    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False
    listed: tuple[Value, ...] = ()

    def draw(self, trial: Trial, name: str) -> Value:
        """Return the value that a trial takes."""
        if self.listed:
            return cast(Value, trial.suggest_categorical(name, self.listed))
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


def read_range(name: str, text: str) -> Range:
    """Return the values that a text names.

    >>> read_range("solver.lr", "0.01..1 log")
    Range(low=0.01, high=1.0, log=True, whole=False, listed=())
    >>> read_range("solver.steps", "1, 5").listed
    (1, 5)
    """
    found = RANGE.fullmatch(text)
    if found is None:
        listed = tuple(_value(item) for item in split_list(text))
        if not listed or ".." in text:
            raise InputError(
                f"cannot read the values of {name}, '{text}': expected '0.01..1', "
                "'0.01..1 log' or '0.1,0.5,1'"
            )
        return Range(listed=listed)
    low, high, log = float(found[1]), float(found[2]), found[3] is not None
    if not low < high or (log and low <= 0):
        raise InputError(f"values of {name}: '{text}' is no range from low to high, log above 0")
    whole = all(re.fullmatch(r"[-+]?\d+", end) for end in (found[1], found[2]))
    return Range(low, high, log, whole)


def read_space(given: Mapping[str, str]) -> dict[str, Range]:
    """Return the values of every setting."""
    if not given:
        raise InputError("name the settings to search: {'solver.lr': '0.01..1 log'}")
    return {name: read_range(name, str(text)) for name, text in given.items()}


def with_settings(experiment: Experiment, values: Mapping[str, Value]) -> Experiment:
    """Return the experiment with other settings; a name that it does not have is refused."""
    solver: dict[str, Any] = {}
    run: dict[str, Any] = {}
    terms = {term.name: dict(term.settings) for term in parse(experiment.setup.algorithm.text)}
    order = list(terms)
    for name, value in values.items():
        first, _, last = name.rpartition(".")
        if first == "solver" and last in Solver.__dataclass_fields__:
            solver[last] = value
        elif not first and last in FREE and last in Conditions.__dataclass_fields__:
            run[last] = value
        elif first in terms:
            terms[first][last] = value
        else:
            raise unknown("setting to search", name, _known(order))
    if "steps" in solver or "epochs" in solver:
        solver = {"steps": None, "epochs": None, **solver}
    text = "+".join(str(Spec(name, terms[name])) for name in order)
    return dataclasses.replace(
        experiment, solver=dataclasses.replace(experiment.solver, **solver), algorithm=text, **run
    )


def _known(terms: list[str]) -> list[str]:
    return [
        *(f"solver.{n}" for n in Solver.__dataclass_fields__),
        *FREE,
        *(f"{t}.*" for t in terms),
    ]


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
