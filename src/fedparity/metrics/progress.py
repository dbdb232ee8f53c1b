"""How fast and at what cost: rounds, bytes, gradient norms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fedparity.errors import InputError
from fedparity.metrics.vectors import Direction

FLOAT_BYTES = 4


def rounds_to_target(
    values: Sequence[float],
    target: float,
    *,
    rounds: Sequence[int] | None = None,
    better: Direction = "higher",
    stay: int = 1,
) -> int | None:
    """Return the first round whose value reaches the target, or None if none does.

    ``min {t : a_t >= target}``, with ``<=`` for ``better="lower"``.

    Parameters
    ----------
    values
        The evaluated metric, in the order of the rounds. NaN does not reach any target.
    rounds
        The round of each value, where not every round was evaluated; 1, 2, ... by default. The
        answer is one of these, so it is only as fine as the evaluations.
    stay
        How many evaluations in a row, that round's included, must reach the target.
    """
    grid = range(1, len(values) + 1) if rounds is None else rounds
    if len(grid) != len(values):
        raise InputError(f"{len(values)} values but {len(grid)} rounds")
    if stay < 1:
        raise InputError(f"stay is a whole number >= 1, got {stay}")
    reached = [value >= target if better == "higher" else value <= target for value in values]
    for start in range(len(values) - stay + 1):
        if all(reached[start : start + stay]):
            return grid[start]
    return None


def speed_up(baseline: int | None, method: int | None) -> float:
    """``rounds(baseline) / rounds(method)``, the baseline being FedAvg in FedPGVC's Table 3.

    None stands for a target never reached, hence infinitely many rounds: the speed-up is then 0 for
    the method, infinite over the baseline, NaN if neither arrived.
    """
    if baseline is None:
        return math.nan if method is None else math.inf
    return 0.0 if method is None else baseline / method


@dataclass(frozen=True)
class Communication:
    """What a run sent: bytes from and to the clients, and how often the server waited for them."""

    bytes_up: int
    bytes_down: int
    synchronisations: int

    @property
    def bytes(self) -> int:
        """Both ways together."""
        return self.bytes_up + self.bytes_down


def communication(
    floats_up: Iterable[int],
    floats_down: Iterable[int],
    synchronisations: Iterable[int],
    *,
    float_bytes: int = FLOAT_BYTES,
) -> Communication:
    """Add up the floats of every round, over all participants: 4 bytes each in float32.

    FedAvg with d parameters and m participants sends ``m d`` floats each way in a round and
    synchronises once.
    """
    return Communication(
        bytes_up=float_bytes * sum(floats_up),
        bytes_down=float_bytes * sum(floats_down),
        synchronisations=sum(synchronisations),
    )


def cumulative_bytes(
    floats_up: Sequence[int], floats_down: Sequence[int], *, float_bytes: int = FLOAT_BYTES
) -> NDArray[np.int64]:
    """Return the bytes sent both ways until the end of each round."""
    both = np.asarray(floats_up, np.int64) + np.asarray(floats_down, np.int64)
    return np.cumsum(float_bytes * both, dtype=np.int64)


def gradient_norms(gradients: ArrayLike, sizes: Mapping[str, int]) -> pd.DataFrame:
    """Return statistics over clients of the L2 norm of every layer's gradient.

    With ``N_kl = ||g_k restricted to layer l||_2``, the columns are ``mean`` ``(1/K) sum_k N_kl``,
    ``variance`` (pop) and ``max``. FedPGVC's Table 1 averages over the layers: ``.mean()`` of this.

    Parameters
    ----------
    gradients
        One row a client, ``[K, d]``: the gradient of its loss at the shared parameters.
    sizes
        Number of parameters of each layer, in the order of the columns.
    """
    matrix = np.asarray(gradients, dtype=np.float64)
    total = sum(sizes.values())
    if matrix.ndim != 2 or matrix.shape[0] == 0 or matrix.shape[1] != total:
        raise InputError(f"gradients of shape {matrix.shape}, expected [clients, {total}]")
    ends = np.cumsum(list(sizes.values()))[:-1]
    layers = np.split(matrix, ends, axis=1)
    norms = np.stack([np.linalg.norm(layer, axis=1) for layer in layers])
    columns = {"mean": norms.mean(1), "variance": norms.var(1), "max": norms.max(1)}
    return pd.DataFrame(columns, index=pd.Index(list(sizes), name="layer"))
