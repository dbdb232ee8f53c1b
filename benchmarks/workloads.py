"""The reference workloads: random data, FedAvg, plain SGD, fixed steps and batches.

Needs numpy alone, so that other frameworks can do the same work in an environment of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Workload:
    """A federation of random examples and the local work of one round."""

    name: str
    clients: int
    cohort: int
    examples: int
    shape: tuple[int, ...]
    steps: int
    batch: int | None
    model: str
    told: str
    """The model in words."""
    uneven: str = ""
    """How sizes differ: by ``dirichlet`` (alpha 0.1), by ``power`` law, or not at all."""
    outputs: int = 10

    def sizes(self) -> np.ndarray:
        """Return the examples of every client."""
        rng = np.random.default_rng(0)
        if self.uneven == "dirichlet":
            shares = rng.dirichlet([0.1] * self.clients)
            return np.maximum(1, (shares * self.examples * self.clients).astype(int))
        if self.uneven == "power":
            raw = rng.lognormal(0, 1, self.clients)
            return np.maximum(1, (raw / raw.mean() * self.examples).astype(int))
        return np.full(self.clients, self.examples)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return inputs, labels and the owner of every example, client after client."""
        rng, sizes = np.random.default_rng(1), self.sizes()
        total = int(sizes.sum())
        x = rng.standard_normal((total, *self.shape), dtype=np.float32)
        return x, rng.integers(0, self.outputs, total), np.repeat(np.arange(self.clients), sizes)

    def by_client(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return inputs and labels of every client."""
        x, y, _ = self.arrays()
        cuts = np.cumsum(self.sizes())[:-1]
        return list(zip(np.split(x, cuts), np.split(y, cuts), strict=True))

    def __str__(self) -> str:
        work = "1 full-batch step" if self.batch is None else f"{self.steps} steps of {self.batch}"
        return f"{self.cohort} of {self.clients:,} clients, {self.told}, {work}"


WORKLOADS = {
    w.name: w
    for w in (
        Workload("lin", 100, 100, 600, (60,), 10, 10, "linear", "linear 60-10"),
        Workload("mlp", 100, 10, 600, (1, 28, 28), 10, 50, "mlp", "784-200-200-10"),
        Workload("cnn", 100, 10, 500, (3, 32, 32), 10, 50, "cnn", "2 conv + 3 linear"),
        Workload("silo", 10, 10, 6000, (784,), 1, None, "linear", "linear 784-62", "dirichlet", 62),
        Workload("device", 100_000, 50, 20, (60,), 5, 10, "linear", "linear 60-10", "power"),
    )
}
