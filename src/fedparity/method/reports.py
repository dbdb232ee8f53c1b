"""What a client may report: the kinds of numbers that parts declare, with their bounds.

A part lists its reports in :attr:`~fedparity.method.part.Part.reports`. The same bounds hold for
the simulator, where a violation is a mistake of the part, and for Flower, where it is a bad
message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

LARGEST = 1e15
"""No single number that a part reports is larger than this."""
ROUNDING = 1e-6
"""By which a loss of zero may be below it."""
LARGEST_LOSS = 1e6
"""A cross-entropy above this is a fault or a lie."""


@dataclass(frozen=True)
class Report:
    """Any finite numbers."""

    low: float = -math.inf
    high: float = math.inf
    vector: ClassVar[bool] = False
    """Whether it is of the model's size, or of some layers': what a boundary clips."""
    noun: ClassVar[str] = "a number"

    def wrong(self, value: Tensor) -> str | None:
        """Return what is wrong with the numbers of one client, or None."""
        if not bool(value.isfinite().all()):
            return "not finite"
        if value.numel() and not self.vector:
            least, most = float(value.min()), float(value.max())
            if most > LARGEST or least < -LARGEST:
                return f"{most if most > LARGEST else least:g}: no report is that large"
            if least < self.low:
                return f"{least:g}: {self.noun} is not {_below(self.low)}"
            if most > self.high:
                return f"{most:g}: {self.noun} is not above {self.high:g}"
        return None


@dataclass(frozen=True)
class Loss(Report):
    """A mean loss. What it may be is the task's to say: see ``losses_of``."""

    noun: ClassVar[str] = "a loss"


@dataclass(frozen=True)
class LossAlong(Loss):
    """A mean loss at a point of a line search, where one that overflows counts as `LARGEST`."""


@dataclass(frozen=True)
class Gap(Report):
    """A validation loss minus the client's L*."""

    noun: ClassVar[str] = "a loss gap"


@dataclass(frozen=True)
class Norm(Report):
    """A length or its square."""

    low: float = 0.0
    noun: ClassVar[str] = "a norm"


@dataclass(frozen=True)
class Share(Report):
    """A share, in [0, 1]."""

    low: float = 0.0
    high: float = 1.0 + 1e-9
    noun: ClassVar[str] = "a share"


@dataclass(frozen=True)
class Count(Report):
    """How many there are of something."""

    low: float = 0.0
    noun: ClassVar[str] = "a count"


@dataclass(frozen=True)
class Vector(Report):
    """A vector of the model's size, or of some of its layers'."""

    vector: ClassVar[bool] = True
    noun: ClassVar[str] = "a vector"


NUMBER, VECTOR = Report(), Vector()


def kind_of(declared: Report | None, value: Tensor) -> Report:
    """Return the kind of a report; of one that nobody declared, by its shape.

    ``value`` is of one client.
    """
    if declared is not None:
        return declared
    return VECTOR if value.dim() else NUMBER


def wrong_loss(lowest: float, highest: float, bounded: bool) -> str | None:
    """Return why a loss is none of a task whose losses are not negative, or None.

    ``bounded`` tells that losses above :data:`LARGEST_LOSS` are none either.
    """
    if lowest < -ROUNDING:
        return f"{lowest:g}: a loss is not negative"
    if bounded and highest > LARGEST_LOSS:
        return f"{highest:g}: no loss is that large"
    return None


def _below(low: float) -> str:
    return "negative" if low == 0 else f"below {low:g}"
