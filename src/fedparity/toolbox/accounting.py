"""Privacy accounting: the epsilon of Gaussian mechanisms that are repeated round after round.

Rényi divergences and their conversion come from the package ``dp-accounting``, which is imported
when a number is wanted.

References
----------
Mironov. Rényi differential privacy. CSF 2017.
Wang, Balle, Kasiviswanathan. Subsampled Rényi differential privacy and analytical moments
accountant. AISTATS 2019.
Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian mechanism. 2019.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np
import numpy.typing as npt

from fedparity.errors import InputError

ORDERS = (
    *(1 + k / 10 for k in range(1, 30)),
    *(k / 2 for k in range(8, 22)),
    *range(11, 64),
    96,
    128,
    256,
)
"""Orders of the Rényi divergences that are kept."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mechanism:
    """What one step releases: a sum with Gaussian noise over those who take part in it.

    Parameters
    ----------
    noise
        Standard deviation of the noise over what one member can change of the sum.
    rate
        With ``poisson``: the probability with which each takes part, and neighbours are data with
        one member more or less. Else all take part, or a cohort.
    cohort
        ``(m, K)``: a cohort of m out of K drawn with equal probability, without replacement;
        neighbours are data in which one member is replaced.

    Examples
    --------
    >>> round(epsilon(((Mechanism(noise=2.0), 1),), 1e-5), 3)  # the closed form has 2.52
    2.166
    """

    noise: float
    rate: float | None = None
    cohort: tuple[int, int] | None = None


def jointly(noises: Sequence[float]) -> float:
    """Return the one multiplier that is as good as several Gaussian releases together.

    >>> jointly([2.0, 2.0]) == 2.0 / math.sqrt(2)
    True
    """
    return 1 / math.sqrt(sum(noise**-2 for noise in noises))


Steps = tuple[tuple[Mechanism, int], ...]


@lru_cache(maxsize=1024)
def epsilon(steps: Steps, delta: float) -> float:
    """Return the epsilon at ``delta`` of mechanisms, each repeated so many times, on one member."""
    return _converted(sum(_each(steps), np.zeros(len(ORDERS))), delta)


@lru_cache(maxsize=1024)
def worst(steps: Steps, delta: float) -> float:
    """Return an epsilon that holds for all of several members, each with a mechanism of its own.

    It is of the largest divergence at every order, so at least that of the worst member.
    """
    return _converted(np.max([np.zeros(len(ORDERS)), *_each(steps)], axis=0), delta)


def _each(steps: Steps) -> list[Array]:
    return [count * np.asarray(_divergences(mechanism)) for mechanism, count in steps if count]


def _converted(divergences: Array, delta: float) -> float:
    """Return the epsilon that follows from Rényi divergences at all orders."""
    if not divergences.any():
        return 0.0
    with _quiet():
        found, _ = _library().compute_epsilon(ORDERS, divergences, delta)
    return float(found)


@lru_cache(maxsize=1024)
def _divergences(mechanism: Mechanism) -> tuple[float, ...]:
    """Return the Rényi divergences of one release at all orders."""
    library = _library()
    import dp_accounting as dp

    event = plain = dp.GaussianDpEvent(mechanism.noise)
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    if mechanism.cohort is not None:
        event = dp.SampledWithoutReplacementDpEvent(*mechanism.cohort[::-1], plain)
        relation = dp.NeighboringRelation.REPLACE_ONE
    elif mechanism.rate is not None:
        event = dp.PoissonSampledDpEvent(mechanism.rate, plain)
    accountant = library.RdpAccountant(ORDERS, relation)
    with _quiet():  # an order whose series does not converge is left out, as it should be
        accountant.compose(event)
    found = np.asarray(accountant.rdp)
    if mechanism.cohort is not None:
        # At large orders the bound with sampling is above the one without, which holds as well.
        found = np.minimum(found, np.asarray(ORDERS) / (2 * mechanism.noise**2))
    return tuple(found.tolist())


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def require(what: str) -> None:
    """Raise InputError where the accountant's package is not installed."""
    try:
        _library()
    except ImportError as error:
        raise InputError(
            f"{what} counts its epsilon with dp-accounting: pip install 'fedparity[privacy]'"
        ) from error


def _library() -> ModuleType:
    from dp_accounting import rdp

    module: ModuleType = rdp
    return module
