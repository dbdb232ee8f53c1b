"""FedFV: conflicting updates are projected off each other before they are averaged."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import Self

from fedparity.core.crew import Crew, cores
from fedparity.core.part import STRICT, Client, Context, Fact, Finish, Part, Tensors, stacked
from fedparity.core.seeds import generator

Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]
BLOCK = 1 << 19
"""Numbers of the updates converted to float64 at once: they stay in cache, and no second matrix is
held."""

CANCELLED = 1e-3
"""Square of a sum of updates, to that of their lengths, below which its digits are worth a pass."""


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
        weights = (w if self.mean == "given" else ctx.uniform).double().numpy()
        gram = gram_matrix(deltas).numpy()
        coefficients = weights @ self._internal(gram, up["loss"], ctx)
        direction = mixture(torch.from_numpy(coefficients), deltas)

        t = ctx.round - 1
        if self.tau and t >= self.tau:
            direction = self._external(direction, deltas, s, ctx)
        length = float(direction.norm())
        # What is left of updates that cancel is rounding: rescaling would make a step of it.
        rounding = 16 * torch.finfo(deltas.dtype).eps * float(weights @ np.sqrt(gram.diagonal()))
        if length <= rounding:
            return torch.zeros_like(deltas[0]), self._remember(deltas, s, ctx)
        plain = self._plain_length(gram, weights, deltas)
        scaled = torch.mul(direction, plain / length, out=torch.empty_like(deltas[0]))
        return scaled, self._remember(deltas, s, ctx)

    @staticmethod
    def _plain_length(gram: Matrix, weights: Matrix, deltas: Tensor) -> float:
        """Return the length of the plain average: from the Gram matrix, if little cancels."""
        square = float(weights @ gram @ weights)
        if square > CANCELLED * float(weights @ np.sqrt(gram.diagonal())) ** 2:
            return math.sqrt(square)
        return float(mixture(torch.from_numpy(weights), deltas).norm())

    def _internal(self, gram: Matrix, losses: Tensor, ctx: Context) -> Matrix:
        """Return the projected updates as rows of coefficients on the original ones."""
        m = len(gram)
        ascending = np.argsort(losses.numpy(), kind="stable")
        projected = np.ones(m, dtype=np.bool_)
        projected[ascending[m - self.kept(m) :]] = False
        targets = ascending
        if self.order == "reverse":
            targets = ascending[::-1]
        elif self.order == "random":
            targets = generator(ctx.seed, "fedfv", ctx.round).permutation(m)
        return project(gram, targets, projected)

    def _external(self, g: Tensor, updates: Tensor, s: Tensors, ctx: Context) -> Tensor:
        """Project the average off the conflicting updates of each past round, oldest first."""
        for who, past in self._past(updates, s, ctx):
            if not bool(who.any()):
                continue
            products = inner_products(past, g)
            conflicts = who & (products < 0)
            if not bool(conflicts.any()):
                continue
            rows = conflicts.nonzero()[:, 0]
            total = mixture(torch.ones(len(rows), dtype=torch.float64), past, rows)
            g.sub_(total, alpha=float(products[conflicts].sum() / (total @ total)))
        return g

    def _past(self, updates: Tensor, s: Tensors, ctx: Context) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each past round's updates, and which are of clients who did not come back since."""
        t, when, who = ctx.round - 1, s["when"].tolist(), s["who"].numpy()
        offsets = range(self.tau, 0, -1) if self.window == "paper" else range(self.tau - 1, -1, -1)
        for offset in offsets:
            if offset == 0:
                yield torch.ones(len(updates), dtype=torch.bool), updates
                continue
            slot = (t - offset) % self.tau
            if when[slot] != t - offset:
                continue
            between = [(t - i) % self.tau for i in range(1, offset)]
            back = np.zeros(ctx.population + 1, dtype=np.bool_)
            back[-1] = True  # a row without a client
            back[ctx.clients.numpy()] = True
            for i, later in enumerate(between, 1):
                if when[later] == t - i:
                    back[who[later]] = True
            yield torch.from_numpy(~back[who[slot]]), s[_slot(slot)]

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


def project(gram: Matrix, targets: Ids, projected: Rows) -> Matrix:
    """Return what is left of the projected rows after each target's turn, as coefficients.

    The coefficients on a target change at its turn alone: they become what each row in conflict
    adds of it to be in conflict no more. A row has itself once, and is no target of its own.
    """
    moving = np.flatnonzero(projected)
    columns = np.zeros((len(gram), len(moving)))
    columns[moving, np.arange(len(moving))] = 1.0
    place = np.where(projected, np.cumsum(projected) - 1, -1)
    order = targets[gram.diagonal()[targets] > 0]
    against = gram[order] / -gram.diagonal()[order, None]
    conflicts = np.empty(len(moving))
    for j, own, row in zip(order.tolist(), place[order].tolist(), against, strict=True):
        row.dot(columns, conflicts)
        np.maximum(conflicts, 0.0, out=columns[j])
        if own >= 0:
            columns[j, own] = 1.0
    found = np.eye(len(gram))
    found[moving] = columns.T
    return found


def gram_matrix(updates: Tensor) -> Tensor:
    """Return the inner products of all pairs of rows, in float64."""
    half = len(updates) // 2

    def term(wide: Tensor, _: slice) -> Tensor:
        found = wide.new_zeros(len(wide), len(wide))
        torch.mm(wide[:half], wide.T, out=found[:half])
        torch.mm(wide[half:], wide[half:].T, out=found[half:, half:])
        return found

    found = _summed(updates, term)
    found[half:, :half] = found[:half, half:].T  # the same products, a quarter of all
    return found


def inner_products(updates: Tensor, g: Tensor) -> Tensor:
    """Return the inner product of every row with ``g``, in float64."""
    return _summed(updates, lambda wide, columns: wide @ g[columns])


def mixture(coefficients: Tensor, updates: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return the combination of all or some rows with these coefficients, in float64."""
    found = torch.empty(updates.shape[1], dtype=torch.float64)
    for _ in _wide(updates, lambda wide, c: torch.mv(wide.T, coefficients, out=found[c]), rows):
        pass
    return found


def _summed(updates: Tensor, term: Callable[[Tensor, slice], Tensor]) -> Tensor:
    """Add up a term of every block of columns."""
    return functools.reduce(Tensor.add_, _wide(updates, term))


def _wide(
    updates: Tensor, one: Callable[[Tensor, slice], Tensor], rows: Tensor | None = None
) -> Iterator[Tensor]:
    """Go through the updates in float64, a block of columns at a time, on all cores."""
    width = max(1, BLOCK // (len(updates) if rows is None else len(rows)))
    blocks = [slice(start, start + width) for start in range(0, updates.shape[1], width)]

    def converted(piece: int, room: Tensor) -> Tensor:
        narrow = updates[:, blocks[piece]]
        if rows is not None:
            narrow = narrow.index_select(0, rows)
        wide = room.resize_(narrow.shape).copy_(narrow)
        return one(wide, blocks[piece])

    return _rooms().stream(len(blocks), converted)


@functools.cache
def _rooms() -> Crew[Tensor]:
    """Return a worker a core, each with room for a block: fresh memory costs more than to fill."""
    return Crew([torch.empty(BLOCK, dtype=torch.float64) for _ in range(cores())])


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_rooms.cache_clear)
