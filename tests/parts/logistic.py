"""Softmax regression in numpy, on the batches that a run takes: the ground of references."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedparity.method.messages import Down
from fedparity.testing import Bench

Vector = npt.NDArray[np.float64]
Batch = tuple[Vector, npt.NDArray[np.int64]]


def batches(made: Bench, round: int, client: int) -> list[Batch]:
    """Return inputs and labels of every local step of a client in a round."""
    setup, data = made.setup, made.setup.federation.train
    x, y = (tensor.numpy() for tensor in data.client(client))
    down, ids = Down("train", round, 0.0, made.x, made.buffers), np.asarray([client])
    plan = setup.solver.batches(setup.seeds(down, ids, "batches"), data.sizes[ids])
    if plan is None:
        return [(x, y)] * int(setup.lengths(ids)[0])
    both = zip(plan.index[0], plan.mask[0], strict=True)
    return [(x[rows[there]], y[rows[there]]) for rows, there in both]


def probabilities(v: Vector, x: Vector) -> Vector:
    """Return the classes' probabilities ``[B, 3]`` of a linear model ``(W, b)`` as one vector."""
    weight, bias = v[:-3].reshape(3, -1), v[-3:]
    scores = x @ weight.T + bias
    raised = np.exp(scores - scores.max(1, keepdims=True))
    found: Vector = raised / raised.sum(1, keepdims=True)
    return found


def loss(v: Vector, batch: Batch) -> float:
    """Return the mean cross-entropy."""
    x, y = batch
    return float(-np.log(probabilities(v, x)[np.arange(len(y)), y]).mean())


def gradient(v: Vector, batch: Batch) -> Vector:
    """Return the gradient of the mean cross-entropy."""
    x, y = batch
    slope = (probabilities(v, x) - np.eye(3)[y]) / len(y)
    return np.concatenate([(slope.T @ x).reshape(-1), slope.sum(0)])


def own(made: Bench, part: str, key: str) -> Any:
    """Return what the clients keep, a row each."""
    everyone = np.arange(len(made.setup.federation))
    return made.store.gather(everyone)[part][key].numpy()


def whole(made: Bench, client: int, split: str = "train") -> Batch:
    """Return all examples of a client."""
    x, y = getattr(made.setup.federation, split).client(client)
    return x.numpy(), y.numpy()


def evaluated(made: Bench, model: str = "personal", split: str = "train") -> Any:
    """Return the clients' losses at an evaluation now, a number each."""
    x, shared = made.setup.algorithm.served(made.server)
    lr = made.setup.solver.lr
    down = Down("evaluate", made.round, lr, x, made.server.buffers, shared)
    return made.door.evaluate(down, split)[model]["loss"]
