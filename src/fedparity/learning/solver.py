"""The local training loop's settings: step rule and batch plan."""

from __future__ import annotations

import math
from dataclasses import dataclass as record
from dataclasses import field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import Self

from fedparity.arguments import Settings
from fedparity.learning.seeds import Keys, kept_if_small, permutations

Slots = tuple[Tensor, ...]
Indices = npt.NDArray[np.int64]


@record(frozen=True)
class BatchPlan:
    """Which examples every step uses, as positions within the client's own training split."""

    index: Indices
    """``[clients, steps, batch]``; padding repeats a valid position."""
    mask: npt.NDArray[np.bool_]
    """``[clients, steps, batch]``; False where ``index`` is padding. Not to be written to."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Solver(metaclass=Settings):
    """How a client trains.

    Parameters
    ----------
    lr
        Learning rate of the first round.
    steps, epochs
        Length of local training: a number of steps, or of passes over the client's data. Exactly
        one is given; by default one epoch.
    batch
        Examples a step. None is a full batch. The last batch of an epoch may be smaller, never
        empty: a client with fewer examples than a batch still trains.
    momentum
        Heavy-ball momentum of SGD, reset every round.
    weight_decay
        Coefficient of the pull towards zero.
    clip
        Largest Euclidean norm of a step's gradient.
    decay
        Factor on the learning rate a round.
    optimizer
        ``sgd``, or ``adam`` (0.9, 0.999, 1e-8, bias-corrected, reset every round).
    lots
        How a step's examples are drawn: ``shuffled`` goes through a permutation, epoch after epoch;
        ``poisson`` takes every example by itself with probability ``batch / n``, so that a lot may
        have any size, and divides by ``batch``, the size expected (what accounts of DP-SGD assume);
        ``fixed`` draws exactly ``batch`` examples anew at every step.
    """

    lr: float = Field(default=0.1, gt=0)
    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    clip: float | None = Field(default=None, gt=0)
    decay: float = Field(default=1.0, gt=0, le=1)
    optimizer: Literal["sgd", "adam"] = field(default="sgd")
    lots: Literal["shuffled", "poisson", "fixed"] = field(default="shuffled")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("takes steps or epochs, not both")
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "epochs", 1)
        if self.lots != "shuffled" and self.batch is None:
            raise ValueError(f"takes lots='{self.lots}' only with a batch")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError("takes momentum only with optimizer='sgd'")
        return self

    @property
    def plain(self) -> bool:
        """Whether a step is exactly ``y - lr * g``."""
        return (
            self.optimizer == "sgd"
            and not self.momentum
            and not self.weight_decay
            and self.clip is None
        )

    @property
    def expected(self) -> int | None:
        """What the sum over a batch is divided by; None divides by the examples it has."""
        return self.batch if self.lots == "poisson" else None

    def rate(self, round: int) -> float:
        """Return the learning rate of a round (the first is 1)."""
        return self.lr * self.decay ** (round - 1)

    def lengths(self, n: Indices) -> Indices:
        """Return the number of steps of clients with ``n`` examples."""
        if self.steps is not None:
            return np.full_like(n, self.steps)
        assert self.epochs is not None
        batches = 1 if self.batch is None else -(-n // self.batch)
        return np.full_like(n, self.epochs) * batches

    def width(self, n: Indices) -> int:
        """Return the examples of the largest batch of clients with ``n`` examples."""
        largest = int(n.max())
        if self.batch is None or self.lots == "poisson":
            return largest
        return min(self.batch, largest)

    def batches(self, seeds: Keys, n: Indices) -> BatchPlan | None:
        """Return the batch plan of a group of clients, or None for full batches.

        Every epoch is a fresh permutation cut into batches. A client's rows depend on its own
        seed and size alone, whatever group it is planned in.
        """
        if self.batch is None:
            return None
        lengths, width = self.lengths(n), self.width(n)
        if (n == n[0]).all():
            index, mask = self._alike(seeds, int(n[0]), int(lengths[0]), width)
            return BatchPlan(index, np.broadcast_to(mask, index.shape))
        shape = (len(n), int(lengths.max()), width)
        index, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        for size in np.unique(n):
            rows = np.flatnonzero(n == size)
            steps = int(lengths[rows[0]])
            index[rows, :steps], mask[rows, :steps] = self._alike(
                seeds[rows], int(size), steps, width
            )
        return BatchPlan(index, mask)

    def _alike(
        self, seeds: Keys, size: int, steps: int, width: int
    ) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Return the batch plan of ``m`` clients of one size: indices ``[m, steps, width]``, mask.

        The mask is ``[steps, width]`` where it is that of every client.
        """
        assert self.batch is not None
        if self.lots != "shuffled":
            return self._lots(seeds, size, steps, width)
        cuts = kept_if_small(_cuts, steps * width)(size, steps, self.batch, width)
        orders = permutations(seeds, cuts.epochs, size, cuts.used)
        index = orders.reshape(len(orders), -1).take(cuts.place, axis=1)
        return index, cuts.inside

    def _lots(
        self, seeds: Keys, size: int, steps: int, width: int
    ) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Return lots that are drawn anew at every step, of clients of one size."""
        assert self.batch is not None
        index = np.zeros((len(seeds), steps, width), dtype=np.int64)
        mask = np.zeros((len(seeds), steps, width), dtype=np.bool_)
        for row, seed in enumerate(seeds):
            draws = np.random.Generator(np.random.Philox(int(seed))).random((steps, size))
            if self.lots == "poisson":
                chosen = draws < min(1.0, self.batch / size)
            else:
                chosen = draws.argsort(1).argsort(1) < self.batch
            for step, rows in enumerate(map(np.flatnonzero, chosen)):
                index[row, step, : len(rows)], mask[row, step, : len(rows)] = rows, True
        return index, mask

    def slots(self, y: Tensor) -> Slots:
        """Return what the step rule remembers between steps, before the first."""
        if self.optimizer == "adam":
            return torch.zeros_like(y), torch.zeros_like(y)
        return (torch.zeros_like(y),) if self.momentum else ()

    def update(
        self, y: Tensor, g: Tensor, slots: Slots, lr: float, step: int
    ) -> tuple[Tensor, Slots]:
        """Take one step from ``y`` along the gradient ``g``; works on any leading dimensions.

        ``step`` counts from 0 within the round.
        """
        if self.clip is not None:
            norm = g.norm(dim=-1, keepdim=True)
            g = g * (self.clip / norm.clamp_min(self.clip))
        if self.weight_decay:
            g = g + self.weight_decay * y
        if self.optimizer == "adam":
            first, second = slots
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g.square()
            unbiased = first / (1 - 0.9 ** (step + 1))
            scale = (second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
            return y - lr * unbiased / scale, (first, second)
        if self.momentum:
            slots = (self.momentum * slots[0] + g,)
            g = slots[0]
        return torch.sub(y, g, alpha=lr), slots


class _Cuts(NamedTuple):
    """Where batches lie in the permutations of a client's examples, one epoch after another."""

    epochs: int
    used: int
    """Places of a permutation that any batch reads."""
    place: Indices
    inside: npt.NDArray[np.bool_]


@lru_cache(maxsize=64)
def _cuts(size: int, steps: int, batch: int, width: int) -> _Cuts:
    per_epoch = math.ceil(size / batch)
    step = np.arange(steps)
    place = (step % per_epoch)[:, None] * batch + np.arange(width)
    epochs = (steps - 1) // per_epoch + 1
    used = min(size, steps * batch) if epochs == 1 else size
    flat = (step // per_epoch)[:, None] * used + np.minimum(place, used - 1)
    return _Cuts(epochs, used, flat, place < size)
