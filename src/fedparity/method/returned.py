"""What the hooks of a part return, and what a line search is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from fedparity.method.messages import Tensors


@dataclass(frozen=True)
class Plan:
    """What the server sends for a part: the same to all, and one row for each client."""

    shared: Tensors = field(default_factory=dict)
    each: Tensors = field(default_factory=dict)
    """Tensors whose first dimension is the cohort, in the order of ``ctx.clients``."""
    state: Tensors | None = None
    """The part's new server state, if it changed."""
    trains: Tensor | None = None
    """Who of the cohort trains, as booleans ``[m]``; None: all. The others are asked no more in
    this round, and all parts go on with those who train."""


@dataclass(frozen=True)
class Finish:
    """What a part returns when a client's local training ends."""

    delta: Tensor
    report: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """What the server sends before an evaluation."""

    x: Tensor
    """The parameters to evaluate and keep; rounds go on from their own."""
    shared: Tensors = field(default_factory=dict)
    """For the part's ``personal``."""


class Mixture(NamedTuple):
    """Several parameters, whose predictions a client mixes."""

    parameters: Tensor
    """``[M, d]``."""
    shares: Tensor
    """``[M]``, not negative, summing to 1."""


class Losses(NamedTuple):
    """Training losses of those who answered, at points along a direction."""

    clients: Tensor
    """Their ids ``[m]``, ascending."""
    values: Tensor
    """``[m, T]``, one column a point."""


LossesAt = Callable[[Sequence[float]], Losses]
"""Asks the clients of the round for their training losses at ``x_t + factor * direction``."""
