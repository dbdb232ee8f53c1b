"""The base rate: what a client would get of a guess that looks at no input.

It is what a model has to beat to be of use to a client: to guess its most frequent class always, or
the mean of its values, both of its own training examples.
"""

from __future__ import annotations

import numpy as np
import torch

from fedparity.data import Split
from fedparity.metrics.vectors import FloatArray


def base_accuracy(train: Split, split: Split, classes: int) -> FloatArray:
    """Return the accuracy of each client's most frequent training class; NaN without an example.

    Of classes that are as frequent it is the first.
    """
    clients, width = len(train.sizes), int(train.y[0].numel())
    place = train.owner.repeat_interleave(width) * classes + train.y.reshape(-1)
    counts = torch.bincount(place, minlength=clients * classes).view(clients, classes)
    guess = counts.argmax(1)[split.owner]
    right = split.y == guess.view(-1, *[1] * (split.y.dim() - 1))
    return _means(right.double().reshape(len(split), -1).mean(1), split)


def base_loss(train: Split, split: Split) -> FloatArray:
    """Return the mean squared error of each client's mean training value; NaN without an example.

    It is the base of the loss of a regression.
    """
    values = train.y.double().reshape(len(train), -1).mean(1)
    guess = torch.from_numpy(_means(values, train))[split.owner]
    distance = split.y.double().reshape(len(split), -1) - guess[:, None]
    return _means(distance.square().mean(1), split)


def _means(values: torch.Tensor, split: Split) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = np.bincount(split.owner.numpy(), values.numpy(), minlength=len(split.sizes))
        return np.asarray(sums / split.sizes)
