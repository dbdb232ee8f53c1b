"""Models that ask something of an engine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


def conv(shape: Shape, outputs: int) -> nn.Module:
    """A small convolution on 1 x 6 x 6 images."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, outputs)
    )


def normed(shape: Shape, outputs: int) -> nn.Module:
    """BatchNorm between two layers."""
    return nn.Sequential(
        nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs)
    )


def smooth(shape: Shape, outputs: int) -> nn.Module:
    """No chain that is written out."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.Softplus(), nn.Linear(8, outputs))


def wide(shape: Shape, outputs: int) -> nn.Module:
    """Enough parameters to fill a core."""
    return nn.Sequential(nn.Linear(shape[0], 60_000), nn.Softplus(), nn.Linear(60_000, outputs))


def dropping(shape: Shape, outputs: int) -> nn.Module:
    """Dropout between two layers."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.Dropout(0.5), nn.Linear(8, outputs))


def rarely_dropping(shape: Shape, outputs: int) -> nn.Module:
    """Dropout so rare that two examples are hardly ever touched."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.Dropout(0.001), nn.Linear(8, outputs))


class Branching(nn.Module):
    """Asks for the value of a tensor, which a stack of clients does not have."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if bool(y.sum() > 0) else 2 * y


class Recurrent(nn.Module):
    """An LSTM over the numbers of an example."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.cell = nn.LSTM(1, 4, batch_first=True)
        self.out = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cell(x[..., None])
        y: Tensor = self.out(states[:, -1])
        return y


class Tied(nn.Module):
    """Uses one matrix twice."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], shape[0])
        self.second = nn.Linear(shape[0], shape[0])
        self.second.weight = self.first.weight
        self.out = nn.Linear(shape[0], outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(torch.relu(self.second(torch.relu(self.first(x)))))
        return y
