"""What every peer's driver shares: the workload asked for, the model in PyTorch, the answer."""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[1]))

from workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from torch import Tensor, nn

LR = 0.01
WARM = 2
"""Rounds that are not timed."""


def asked() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Time FedAvg rounds; prints lines of JSON.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", action="store_true", help="wait for a line before each round")
    return parser.parse_args()


def asked_for() -> None:
    """Wait until a round is asked for; if nobody will, the process ends."""
    if not sys.stdin.readline():
        os._exit(1)


class Turns:
    """The rounds of a driver: some to warm up, then those that are timed.

    Alone, a driver prints the median of its rounds. In turns with others it says when it is ready,
    waits for a line before every round and prints what that took.
    """

    def __init__(self, package: str, setting: str = "") -> None:
        told = asked()
        self.rounds, self.alone = told.rounds, not told.turns
        self.total = WARM + self.rounds
        self.about = {"version": version(package), "setting": setting}
        self.seconds: list[float] = []
        self.done, self.began = -1, 0.0

    def next(self, wait: Callable[[], object] = asked_for) -> bool:
        """Note that a round may have ended; tell whether another one begins."""
        took = time.perf_counter() - self.began
        self.done += 1
        if self.done > WARM:
            self.seconds.append(took)
            if not self.alone:
                print(json.dumps({"ms": 1000 * took}), flush=True)
        if self.done == WARM and not self.alone:
            print(json.dumps(self.about), flush=True)
        if self.done == self.total:
            if self.alone:
                told = {"ms": 1000 * statistics.median(self.seconds), **self.about}
                print(json.dumps(told), flush=True)
            return False
        if self.done >= WARM and not self.alone:
            wait()
        self.began = time.perf_counter()
        return True

    def take(self, round: Callable[[], object]) -> None:
        """Do all rounds."""
        while self.next():
            round()


def network(workload: Workload) -> nn.Module:
    """Return the workload's model."""
    from torch import nn

    if workload.model == "cnn":
        conv = [nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
        conv += [nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*conv, nn.Flatten(), *_linear(1600, 384, 192, workload.outputs))
    features = functools.reduce(lambda a, b: a * b, workload.shape)
    hidden = (200, 200) if workload.model == "mlp" else ()
    return nn.Sequential(nn.Flatten(), *_linear(features, *hidden, workload.outputs))


def _linear(*sizes: int) -> list[nn.Module]:
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


@functools.cache
def client_data(name: str) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and labels of every client; made once in a process."""
    import torch

    pairs = WORKLOADS[name].by_client()
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs]


def train(model: nn.Module, x: Tensor, y: Tensor, workload: Workload) -> None:
    """Train a client as a user of PyTorch writes it."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    loss = torch.nn.CrossEntropyLoss()
    batch = workload.batch or len(x)
    order = torch.randperm(len(x))
    for step in range(workload.steps):
        place = step * batch % max(1, len(x) - batch + 1)
        rows = order[place : place + batch]
        optimizer.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
