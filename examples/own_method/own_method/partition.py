"""Uneven: every client gets so many times as many examples as the one before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Uneven:
    """Shares of the shuffled examples grow by a factor from client to client.

    Parameters
    ----------
    ratio
        The factor.
    """

    ratio: float = 2.0

    def assign(
        self,
        labels: npt.NDArray[np.generic],
        natural: npt.NDArray[np.int64] | None,
        clients: int | None,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Return the client of each example."""
        share = self.ratio ** np.arange(clients or 4)
        ends = np.round(np.cumsum(share) / share.sum() * len(labels))
        place = np.searchsorted(ends, np.arange(len(labels)), side="right")
        return rng.permutation(place)
