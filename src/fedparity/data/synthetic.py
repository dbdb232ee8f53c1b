"""Data drawn from a formula: the synthetic federations of two papers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedparity.data.split import Ints
from fedparity.learning.seeds import generator

Floats = npt.NDArray[np.float64]
EAGLE_MEANS = (2.0, 0.5, 0.1)
DIMENSIONS, CLASSES = 60, 10
MOST_EXAMPLES = 50_000


def eagle_clients(seed: int, n: int, rotated: int) -> tuple[Floats, Ints, Ints]:
    """Return inputs, labels and client of the three Gaussian clients of the EAGLE paper."""
    rng = generator(seed, "eagle_synthetic")
    y = np.tile(np.arange(n) % 2, 3)
    client = np.repeat(np.arange(3), n)
    centre = np.asarray(EAGLE_MEANS)[client] * np.where(y == 1, 1.0, -1.0)
    x = rng.standard_normal((3 * n, 2)) + centre[:, None]
    turn = np.pi / 4
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    x[client == rotated] = x[client == rotated] @ rotation.T
    return x, y, client


def alpha_beta(
    alpha: float, beta: float, clients: int, seed: int
) -> tuple[npt.NDArray[np.float32], Ints, Ints]:
    """Return inputs, labels and client of synthetic(alpha, beta)."""
    rng = generator(seed, "synthetic")
    n = 50 + np.minimum(rng.lognormal(4, 2, clients), MOST_EXAMPLES).astype(np.int64)
    u = rng.normal(0, alpha, clients)
    mean = rng.normal(0, beta, clients)
    deviation = np.arange(1, DIMENSIONS + 1) ** -0.6  # the root of the variances j^-1.2
    x = np.empty((int(n.sum()), DIMENSIONS), dtype=np.float32)
    y = np.empty(len(x), dtype=np.int64)
    last = np.cumsum(n)
    for k in range(clients):
        weight = rng.normal(u[k], 1, (DIMENSIONS, CLASSES))
        bias = rng.normal(u[k], 1, CLASSES)
        centre = rng.normal(mean[k], 1, DIMENSIONS)
        rows = slice(int(last[k] - n[k]), int(last[k]))
        x[rows] = centre + deviation * rng.standard_normal((int(n[k]), DIMENSIONS))
        y[rows] = np.argmax(x[rows] @ weight + bias, axis=1)
    return x, y, np.repeat(np.arange(clients), n)
