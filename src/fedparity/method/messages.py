"""What travels between the server and its clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

Tensors = Mapping[str, Tensor]
Named = dict[str, dict[str, Tensor]]
"""Tensors by part, then by name."""
SERVER = ""
"""In place of a part's name: what the round itself says, not a part."""


@dataclass(frozen=True)
class Down:
    """What the server sends in one exchange.

    ``phase`` says what is asked: ``probe`` (what the parts' hook ``probe`` reports), ``train``,
    ``losses`` (at points along a direction) or ``evaluate``.
    """

    phase: str
    round: int
    lr: float
    x: Tensor
    buffers: Tensor
    shared: Mapping[str, Tensors] = field(default_factory=dict)
    each: Mapping[str, Tensors] = field(default_factory=dict)
    """By part; the first dimension is the cohort."""
    search: int = 0
    """Which of the round's exchanges at points along a direction this is, from 1; 0 if none."""


@dataclass(frozen=True)
class Up:
    """What one client, or a stack of clients, sends back and keeps."""

    reports: Named
    deltas: Tensor | None = None
    buffers: Tensor | None = None
    states: Named = field(default_factory=dict)
    sums: Tensor | None = None
    """The sum of each update, where the engine has made it already."""


class Reply(NamedTuple):
    """Everything that leaves one client in an exchange, as the boundary (``seal``) sees it."""

    delta: Tensor
    """The update ``[d]``; empty where nothing was trained."""
    buffers: Tensor
    """The buffers that are averaged; empty where there are none or they stay."""
    reports: Named
    """Of every part."""


class Own(NamedTuple):
    """What one client would really use, or each client of a stack (one more dimension in front)."""

    parameters: Tensor
    """``[d]``, or ``[M, d]`` where a client mixes the predictions of several."""
    buffers: Tensor
    shares: Tensor | None = None
    """``[M]``, where predictions are mixed."""


class Replies(NamedTuple):
    """What came back from an exchange, stacked in ascending order of client id."""

    clients: Tensor
    steps: Tensor
    reports: Named
    deltas: Tensor
    buffers: Tensor
    weights: Tensor | None = None
    """By what each counted, ``[m]``; None before that, and where no weights are used."""


class Server(NamedTuple):
    """What the server keeps: parameters, buffers, and each part's state."""

    x: Tensor
    buffers: Tensor
    parts: Named
