"""Missed: the share of floods that nobody was warned of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def missed(target: npt.NDArray[np.int64], output: npt.NDArray[np.float64]) -> float:
    """Share of the floods that were not foretold."""
    flood = target == 1
    return float((output.argmax(1) != 1)[flood].mean()) if flood.any() else float("nan")
