"""FedFV: conflicting updates are projected off each other before they are averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import Self

from fedparity.core.part import STRICT, Client, Context, Fact, Finish, Part, Tensors, stacked
from fedparity.core.seeds import generator

Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]
COLUMNS = 1 << 12
"""Columns of the updates converted to float64 at once: they stay in cache, and no second matrix
is held."""


@dataclass(frozen=True, config=STRICT)
class FedFV(Part):
    r"""Remove conflicts (negative inner products) among updates, present and remembered.

    With :math:`G_k = -D_k`, every client but the :math:`\alpha` share of highest loss takes

    .. math:: P_k \leftarrow P_k - \frac{P_k\cdot G_j}{\|G_j\|^2} G_j
              \quad\text{for } j \ne k \text{ with } P_k\cdot G_j < 0,

    j in ascending order of loss; then :math:`g = \frac1m\sum_k P_k` is projected off the sums of
    conflicting updates of each of the last :math:`\tau` rounds, oldest first, and rescaled to the
    length of :math:`\frac1m\sum_k G_k`.

    Parameters
    ----------
    alpha
        Share of clients, those of highest loss, whose updates are kept as they are.
    tau
        Past rounds whose absent clients are remembered; 0 remembers none.
    window
        ``paper`` looks at the rounds t-tau .. t-1 (the algorithm), ``code`` at t-tau+1 .. t (the
        authors' code, in which tau=1 touches present clients only).
    order
        Order of the projection targets: by ascending ``loss``, ``reverse``, or ``random``.
    mean
        ``uniform``, or ``given`` for the weights that other parts or the experiment give.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss. The server learns each client's loss,
    and needs individual updates. The pseudo-code of the paper says the top clients are projected;
    its text and the authors' code keep them, and so do we. An average that vanishes (all updates in
    conflict) leaves the model where it is; an update of zero is no target. The server works in
    float64 on the Gram matrix of the updates: projected updates are coefficients, so the cost is
    one product of the updates with their transpose.

    Examples
    --------
    >>> FedFV(alpha=1/3).kept(3), FedFV(alpha=0).kept(3), FedFV(alpha=1).kept(3)
    (1, 0, 3)

    References
    ----------
    Wang et al. Federated learning with fair averaging. IJCAI 2021.
    """

    alpha: float = Field(default=0.1, ge=0, le=1, description="share of updates kept as they are")
    tau: int = Field(default=1, ge=0, description="past rounds remembered")
    window: Literal["paper", "code"] = "paper"
    order: Literal["loss", "reverse", "random"] = "loss"
    mean: Literal["uniform", "given"] = "uniform"

    name = "fedfv"
    paper = "Wang et al. 2021 (FedFV)"
    equalises = "accuracy (fewer conflicts)"
    learns = "its update and its training loss"

    @model_validator(mode="after")
    def _window_needs_rounds(self) -> Self:
        if self.window == "code" and self.tau == 0:
            raise ValueError("window='code' needs tau >= 1")
        return self

    @property
    def reads(self) -> frozenset[Fact]:
        return frozenset({"loss"})

    @property
    def ignores_weights(self) -> bool:
        return self.mean == "uniform"

    def neutral(self) -> Part:
        return FedFV(alpha=1.0, tau=0)

    def kept(self, m: int) -> int:
        """Return how many of m clients keep their update."""
        if self.alpha == 0:
            return 0
        return m - math.ceil((m - 1) * (1 - self.alpha) - 1e-9)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        if self.tau == 0:
            return {}
        return {
            **{_slot(i): x.new_zeros(ctx.cohort, len(x)) for i in range(self.tau)},
            "who": torch.full((self.tau, ctx.cohort), -1),
            "when": torch.full((self.tau,), -1),
        }

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.loss})

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        # Everything below is odd in the updates, so the sign of G = -D is left to the end: D is
        # projected as it is, and kept as it is.
        weights = (w if self.mean == "given" else ctx.uniform).double()
        gram = gram_matrix(deltas)
        coefficients = self._internal(gram, up["loss"], ctx)
        direction, plain = mixtures(torch.stack([weights @ coefficients, weights]), deltas)

        t = ctx.round - 1
        if self.tau and t >= self.tau:
            direction = self._external(direction, deltas, s, ctx)
        length = direction.norm()
        # What is left of updates that cancel is rounding: rescaling would make a step of it.
        rounding = 16 * torch.finfo(deltas.dtype).eps * (weights @ gram.diagonal().sqrt())
        if float(length) <= float(rounding):
            return torch.zeros_like(deltas[0]), self._remember(deltas, s, ctx)
        direction *= plain.norm() / length
        return direction.to(deltas.dtype), self._remember(deltas, s, ctx)

    def _internal(self, gram: Tensor, losses: Tensor, ctx: Context) -> Tensor:
        """Return the projected updates as rows of coefficients on the original ones."""
        m = len(gram)
        ascending = torch.sort(losses, stable=True).indices
        projected = torch.ones(m, dtype=torch.bool)
        projected[ascending[m - self.kept(m) :]] = False
        targets = ascending
        if self.order == "reverse":
            targets = ascending.flip(0)
        elif self.order == "random":
            shuffle = generator(ctx.seed, "fedfv", ctx.round).permutation(m)
            targets = torch.from_numpy(np.asarray(shuffle))
        return torch.from_numpy(project(gram.numpy(), targets.tolist(), projected.numpy()))

    def _external(self, g: Tensor, updates: Tensor, s: Tensors, ctx: Context) -> Tensor:
        """Project the average off the conflicting updates of each past round, oldest first."""
        for who, past in self._past(updates, s, ctx):
            if not bool(who.any()):
                continue
            conflicts = who & (inner_products(past, g) < 0)
            (total,) = mixtures(conflicts.double()[None], past)
            product = g @ total
            if float(product) < 0:
                g = g - product / (total @ total) * total
        return g

    def _past(self, updates: Tensor, s: Tensors, ctx: Context) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each past round's updates, and which are of clients who did not come back since."""
        t = ctx.round - 1
        offsets = range(self.tau, 0, -1) if self.window == "paper" else range(self.tau - 1, -1, -1)
        for offset in offsets:
            if offset == 0:
                yield torch.ones(len(updates), dtype=torch.bool), updates
                continue
            slot = (t - offset) % self.tau
            if int(s["when"][slot]) != t - offset:
                continue
            who = s["who"][slot]
            between = [i for i in range(1, offset) if int(s["when"][(t - i) % self.tau]) == t - i]
            later = torch.cat([ctx.clients, *(s["who"][(t - i) % self.tau] for i in between)])
            yield (who >= 0) & ~torch.isin(who, later), s[_slot(slot)]

    def _remember(self, updates: Tensor, s: Tensors, ctx: Context) -> Tensors:
        if self.tau == 0:
            return s
        t, m = ctx.round - 1, len(updates)
        slot = t % self.tau
        who, when = s["who"].clone(), s["when"].clone()
        who[slot], who[slot, :m], when[slot] = -1, ctx.clients, t
        if m < ctx.cohort:
            updates = torch.cat([updates, updates.new_zeros(ctx.cohort - m, updates.shape[1])])
        return {**s, _slot(slot): updates, "who": who, "when": when}


def _slot(place: int) -> str:
    """Return the name under which a past round's updates are kept."""
    return f"updates{place}"


def project(gram: Matrix, targets: list[int], projected: Rows) -> Matrix:
    """Return what is left of the projected rows after each target's turn, as coefficients."""
    columns, moving = np.eye(len(gram)), projected.astype(np.float64)
    for j in targets:
        if gram[j, j] == 0:
            continue
        conflicts = np.minimum(gram[j] @ columns, 0.0) * moving
        conflicts[j] = 0.0
        columns[j] -= conflicts / gram[j, j]
    return columns.T


def gram_matrix(updates: Tensor) -> Tensor:
    """Return the inner products of all pairs of rows, in float64."""
    total = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for columns in torch.split(updates, COLUMNS, dim=1):
        wide = columns.double()
        total += wide @ wide.T
    return total


def mixtures(coefficients: Tensor, updates: Tensor) -> Tensor:
    """Return combinations of the rows, one a row of coefficients, in float64."""
    found = torch.empty(len(coefficients), updates.shape[1], dtype=torch.float64)
    for columns, part in zip(
        torch.split(updates, COLUMNS, dim=1), torch.split(found, COLUMNS, dim=1), strict=True
    ):
        torch.mm(coefficients, columns.double(), out=part)
    return found


def inner_products(updates: Tensor, g: Tensor) -> Tensor:
    """Return the inner product of every row with ``g``, in float64."""
    total = torch.zeros(len(updates), dtype=torch.float64)
    for columns, part in zip(
        torch.split(updates, COLUMNS, dim=1), torch.split(g, COLUMNS), strict=True
    ):
        total += columns.double() @ part
    return total
