"""The reference workloads: random data, FedAvg, plain SGD, fixed steps and batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import fedparity as fp


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
    uneven: str = ""
    """How sizes differ: by ``dirichlet`` (alpha 0.1), by ``power`` law, or not at all."""

    def sizes(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        if self.uneven == "dirichlet":
            shares = rng.dirichlet([0.1] * self.clients)
            return np.maximum(1, (shares * self.examples * self.clients).astype(int))
        if self.uneven == "power":
            raw = rng.lognormal(0, 1, self.clients)
            return np.maximum(1, (raw / raw.mean() * self.examples).astype(int))
        return np.full(self.clients, self.examples)

    def federation(self) -> fp.Federation:
        rng, sizes = np.random.default_rng(1), self.sizes()
        total = int(sizes.sum())
        x = rng.standard_normal((total, *self.shape), dtype=np.float32)
        y = rng.integers(0, self.outputs, total)
        client = np.repeat(np.arange(self.clients), sizes)
        part = np.full(total, "train")
        return fp.Federation.from_arrays(x, y, client, part, outputs=self.outputs)

    @property
    def outputs(self) -> int:
        return 62 if self.name == "silo" else 10

    def experiment(self, algorithm: str = "fedavg", **more: object) -> fp.Experiment:
        solver = fp.Solver(lr=0.01, steps=self.steps, batch=self.batch)
        return fp.Experiment(
            self.federation(),
            self.model,
            algorithm=algorithm,
            rounds=10_000,
            solver=solver,
            cohort=self.cohort,
            lstar="none",
            **more,
        )


WORKLOADS = {
    w.name: w
    for w in (
        Workload("lin", 100, 100, 600, (60,), 10, 10, "linear"),
        Workload("mlp", 100, 10, 600, (1, 28, 28), 10, 50, "mlp"),
        Workload("cnn", 100, 10, 500, (3, 32, 32), 10, 50, "cnn"),
        Workload("silo", 10, 10, 6000, (784,), 1, None, "linear", "dirichlet"),
        Workload("device", 100_000, 50, 20, (60,), 5, 10, "linear", "power"),
    )
}


class PlainLoop:
    """What one writes by hand: a copy of the model a client, an optimiser, a loop, an average."""

    def __init__(self, experiment: fp.Experiment) -> None:
        self.experiment, self.model = experiment, experiment.setup.module
        self.loss = nn.CrossEntropyLoss()
        self.round = 0

    def __call__(self) -> None:
        self.round += 1
        federation, solver = self.experiment.federation, self.experiment.solver
        cohort = self.experiment.sample(self.round)
        start = {k: v.clone() for k, v in self.model.state_dict().items()}
        total = {k: torch.zeros_like(v) for k, v in start.items()}
        examples = int(federation.train.sizes[cohort].sum())
        for client in cohort:
            self.model.load_state_dict(start)
            x, y = federation.train.client(int(client))
            optimizer = torch.optim.SGD(self.model.parameters(), lr=solver.lr)
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.round))
            batch = solver.batch or len(x)
            for step in range(solver.steps or 1):
                place = step * batch % max(1, len(x) - batch + 1)
                rows = order[place : place + batch] if solver.batch else slice(None)
                optimizer.zero_grad()
                self.loss(self.model(x[rows]), y[rows]).backward()
                optimizer.step()
            for key, value in self.model.state_dict().items():
                total[key] += value * (len(x) / examples)
        self.model.load_state_dict(total)
