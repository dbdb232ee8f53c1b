"""A round as one writes it by hand in PyTorch: a copy, an optimiser, a loop, an average."""

from __future__ import annotations

import torch
from torch import nn

import fedparity as fp


class PlainLoop:
    """The clients of a round one after another, with torch's own optimiser."""

    def __init__(self, experiment: fp.Experiment) -> None:
        self.experiment, self.model = experiment, experiment.setup.module
        self.loss = nn.CrossEntropyLoss()
        self.round = 0

    def __call__(self) -> None:
        self.round += 1
        self.model.train()
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
                found = self.model(x[rows])
                self.loss(found.flatten(0, -2), y[rows].flatten()).backward()
                optimizer.step()
            for key, value in self.model.state_dict().items():
                if value.is_floating_point():
                    total[key] += value * (len(x) / examples)
                else:  # BatchNorm's counter of steps
                    total[key] = value.clone()
        self.model.load_state_dict(total)
