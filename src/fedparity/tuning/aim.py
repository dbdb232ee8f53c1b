"""What is wanted, as a sentence: ``lowest gap_variance with mean_accuracy within 0.5 of fedavg``.

.. code-block:: text

    aim       = ("lowest" | "highest") summary ["with" condition ("and" condition)*]
    condition = summary "within" number ["points"] "of" algorithm
              | summary ("<=" | ">=") number

A summary is a name of :data:`fedparity.metrics.SUMMARIES`, in which spaces may stand for
underscores; ``accuracy`` and ``loss`` are short for their means over the clients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedparity.errors import InputError, unknown
from fedparity.metrics import Summary

LONGEST = 1000
SHORT = {"accuracy": "mean_accuracy", "loss": "mean_loss", "gap": "mean_gap"}
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
AIM = re.compile(r"(?P<way>lowest|highest)\s+(?P<name>[\w ]+?)(?:\s+with\s+(?P<rest>.+))?")
WITHIN = re.compile(
    rf"(?P<name>[\w ]+?)\s+within\s+(?P<number>{NUMBER})(?:\s+points)?\s+of\s+(?P<of>\S.*)"
)
LIMIT = re.compile(rf"(?P<name>[\w ]+?)\s*(?P<sign><=|>=)\s*(?P<number>{NUMBER})")
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Condition:
    """A summary that must not be worse than a number, or than a reference by more than a number."""

    summary: str
    better: str
    number: float
    of: str | None = None

    def excess(self, numbers: Numbers, references: Mapping[str, Numbers]) -> float:
        """Return by how much the condition is missed: at most 0 where it holds."""
        sign = 1 if self.better == "lower" else -1
        limit = self.number
        if self.of is not None:
            limit = references[self.of][self.summary] + sign * self.number
        missed = sign * (numbers[self.summary] - limit)
        return missed if math.isfinite(missed) else math.inf


@dataclass(frozen=True)
class Aim:
    """What is to be lowest or highest, under which conditions."""

    text: str
    summary: str
    better: str
    conditions: tuple[Condition, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The algorithms that conditions name, each once."""
        return tuple(dict.fromkeys(c.of for c in self.conditions if c.of is not None))

    @property
    def summaries(self) -> tuple[str, ...]:
        """All summaries that the aim speaks of, each once."""
        return tuple(dict.fromkeys([self.summary, *(c.summary for c in self.conditions)]))


def read(text: str, known: Mapping[str, Summary]) -> Aim:
    """Return the aim that a sentence says.

    >>> from fedparity.metrics import SUMMARIES
    >>> aim = read("lowest gap variance with accuracy within 0.5 points of fedavg", SUMMARIES)
    >>> aim.summary, aim.conditions[0].summary, aim.references
    ('gap_variance', 'mean_accuracy', ('fedavg',))
    """
    if len(text) > LONGEST:
        raise InputError(f"an aim of {len(text)} characters: at most {LONGEST} are read")
    found = AIM.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"cannot read the aim '{text}': expected such as 'lowest gap_variance with accuracy "
            "within 0.5 points of fedavg'"
        )
    name, better = _summary(found["name"], known)
    if (found["way"] == "lowest") != (better == "lower"):
        right = "lowest" if better == "lower" else "highest"
        raise InputError(f"of {name}, {better} is better: write '{right} {name}'")
    parts = re.split(r"\s+and\s+", found["rest"]) if found["rest"] else []
    return Aim(text.strip(), name, better, tuple(_condition(part, known) for part in parts))


def _condition(text: str, known: Mapping[str, Summary]) -> Condition:
    if within := WITHIN.fullmatch(text.strip()):
        name, better = _summary(within["name"], known)
        number = float(within["number"])
        if number < 0:
            raise InputError(f"'{text}': within takes a number of at least 0")
        return Condition(name, better, number, within["of"].strip())
    if limit := LIMIT.fullmatch(text.strip()):
        name, better = _summary(limit["name"], known)
        if (limit["sign"] == "<=") != (better == "lower"):
            raise InputError(f"of {name}, {better} is better: turn '{limit['sign']}' round")
        return Condition(name, better, float(limit["number"]))
    raise InputError(
        f"cannot read the condition '{text}': expected such as 'accuracy within 0.5 of fedavg' or "
        "'worst_accuracy >= 70'"
    )


def _summary(words: str, known: Mapping[str, Summary]) -> tuple[str, str]:
    name = "_".join(words.split())
    name = SHORT.get(name, name)
    if name not in known:
        raise unknown("summary", name, known)
    better = known[name].better
    if better is None:
        raise InputError(f"'{name}' is only counted: no value of it is better")
    return name, better
