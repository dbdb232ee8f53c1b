"""What a run can say of its clients' privacy: a number, or why there is none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

ADDS_TO_GRADIENTS = "adds_to_gradients"
"""Trait of a part whose ``grad`` adds what no example of the step changes, and does nothing else.

It may stand before the noise of gradients, for no example counts for more; so may a pull."""


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of what a run has released so far.

    Parameters
    ----------
    epsilon
        The privacy loss; None where none can be claimed.
    delta
        The probability with which it may be exceeded.
    unit
        What is protected: all that a ``client`` has, or one ``example``.
    against
        Who may look, in words.
    because
        Why there is no epsilon.
    next
        The epsilon after one more round.
    budget
        The largest epsilon wanted.
    """

    epsilon: float | None
    delta: float
    unit: Literal["client", "example"]
    against: str
    because: str = ""
    next: float | None = None
    budget: float | None = None

    @property
    def spent(self) -> bool:
        """Whether one more round would go over the budget."""
        return self.budget is not None and self.next is not None and self.next > self.budget

    @property
    def metric(self) -> str:
        """The name of the number in tables."""
        return f"{self.unit}_epsilon"

    def record(self) -> dict[str, Any]:
        """Return it as plain values, with the line that tells it."""
        told = {key: value for key, value in asdict(self).items() if key not in ("next", "budget")}
        return {**told, "line": self.line}

    @property
    def line(self) -> str:
        """The guarantee in one line.

        >>> Guarantee(2.5, 1e-3, "client", "whoever sees the models").line
        'epsilon 2.5 at delta 0.001 for every client, against whoever sees the models'
        >>> Guarantee(None, 1e-3, "client", "", because="updates leave without noise").line
        'no epsilon: updates leave without noise'
        """
        if self.epsilon is None:
            return f"no epsilon: {self.because}"
        return (
            f"epsilon {self.epsilon:.4g} at delta {self.delta:.2g} for every {self.unit}, against "
            f"{self.against}"
        )
