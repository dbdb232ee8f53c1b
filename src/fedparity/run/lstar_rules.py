"""When a client that trains alone is done, and which of its models tells L*."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as settings

from fedparity.spec import construct, parse_one

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class BestValidation:
    """The loss of the model with the least validation loss along the way (the default).

    Parameters
    ----------
    rounds
        At most this many rounds alone.
    patience
        A client stops when its validation loss has not fallen for this many rounds.
    tolerance
        By which share of itself it must fall to count.
    """

    rounds: int = Field(default=1000, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=1e-3, ge=0)

    watched = "validation"
    """The split whose loss decides."""

    def fallen(self, loss: Values, mark: Values) -> Flags:
        """Tell where a loss is below one before by enough to go on."""
        return mark - loss > self.tolerance * np.abs(mark)

    def kept(self, loss: Values, best: Values) -> Flags:
        """Tell whose model is kept: the best one seen."""
        return loss < best


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class TrainPlateau:
    """The loss of the model at which the training loss has gone flat (the EAGLE paper's rule).

    It overfits, and so inflates L* on small clients: offered for reproduction.

    Parameters
    ----------
    rounds
        At most this many rounds alone; the paper has at most so many epochs.
    patience
        A client stops when its training loss has been flat for this many rounds.
    tolerance
        Flat means that it fell by no more than this, in the unit of the loss: a training loss may
        go to zero, and a share of that would never be small.
    """

    rounds: int = Field(default=10_000, ge=1)
    patience: int = Field(default=20, ge=1)
    tolerance: float = Field(default=1e-4, ge=0)

    watched = "train"
    """The split whose loss decides."""

    def fallen(self, loss: Values, mark: Values) -> Flags:
        """Tell where a loss is below one before by enough to go on."""
        return mark - loss > self.tolerance

    def kept(self, loss: Values, best: Values) -> Flags:
        """Tell whose model is kept: the last one."""
        return np.ones(len(loss), dtype=np.bool_)


RULES: dict[str, Callable[..., BestValidation | TrainPlateau]] = {
    "best_validation": BestValidation,
    "train_plateau": TrainPlateau,
}
LstarRule = BestValidation | TrainPlateau


def rule(text: str) -> LstarRule:
    """Read a rule such as ``best_validation(patience=50)``."""
    return construct("rule for L*", parse_one(text), RULES)
