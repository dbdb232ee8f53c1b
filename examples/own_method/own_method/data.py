"""Rivers: does the water rise above a mark tomorrow? Four gauges, each with a mark of its own."""

from __future__ import annotations

import numpy as np

from fedparity import Dataset

GAUGES = ("alder", "birch", "cedar", "dogwood")


def rivers(n: int = 60, seed: int = 0) -> Dataset:
    """Level and rain of ``n`` days at each of four gauges, and whether a flood followed.

    Parameters
    ----------
    n
        Days a gauge.
    seed
        Of the weather.
    """
    rng = np.random.default_rng(seed)
    gauge = np.repeat(np.arange(len(GAUGES)), n)
    weather = rng.standard_normal((len(gauge), 2))
    flood = weather @ [1.0, 2.0] > 0.5 * gauge - 0.75
    return Dataset(
        "rivers",
        weather.astype(np.float32),
        flood.astype(np.int64),
        outputs=2,
        natural=gauge,
        natural_names=GAUGES,
    )
