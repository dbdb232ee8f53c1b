"""What every peer's driver shares: the workload asked for, the model in PyTorch, the answer."""

from __future__ import annotations

import argparse
import functools
import json
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


def asked() -> tuple[Workload, int]:
    """Return the workload and the number of rounds of the command line."""
    parser = argparse.ArgumentParser(description="Time FedAvg rounds; prints one line of JSON.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    return WORKLOADS[told.workload], told.rounds


def timed(round: Callable[[], object], rounds: int) -> list[float]:
    """Return the seconds of every round after the first."""
    times = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        round()
        if number:
            times.append(time.perf_counter() - began)
    return times


def answer(package: str, seconds: list[float], setting: str = "") -> None:
    """Print the median milliseconds a round."""
    told = {"ms": 1000 * statistics.median(seconds), "version": version(package)}
    print(json.dumps({**told, "setting": setting}), flush=True)


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
