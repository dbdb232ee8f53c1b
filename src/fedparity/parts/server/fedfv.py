"""FedFV: conflicting updates are projected off each other before they are averaged."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import Self

from fedparity.learning.seeds import generator
from fedparity.method import STRICT, Client, Context, Finish, Loss, Part, Tensors, stacked
from fedparity.toolbox.products import Ids, Numbers, Updates, gram_matrix, inner_products, mixture

Rows = npt.NDArray[np.bool_]
CANCELLED = 1e-4
"""Square of a sum of updates, to their mean square, below which its digits are worth a pass.

Above, it has twelve digits of the Gram matrix's sixteen.
"""

TINY = float(np.finfo(np.float64).tiny)
"""Square of an update that is as good as zero, for one over less is infinite."""


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
        ``paper`` looks at the rounds t-tau .. t-1 from the first round with so many behind it: the
        algorithm as printed, and what its tables were made with. ``code`` looks at t-tau+1 .. t
        from round tau on, so that tau=1 touches present clients only: the authors' later code,
        easyFL from August 2021 on and FLGo, and what others copied from it.
    order
        Order of the projection targets: by ascending ``loss``, ``reverse``, or ``random``.
    mean
        ``uniform``, or ``given`` for the weights that other parts or the experiment give.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss. The server learns each client's loss,
    and needs individual updates. The pseudo-code of the paper says the top clients are projected;
    its text and the authors' code keep them, and so do we. An average that vanishes, projected (all
    updates in conflict) or plain, leaves the model where it is; an update of zero is no target. The
    server works on the Gram matrix of the updates: projected updates are coefficients, in float64,
    so the cost is one product of the updates with their transpose.

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
    reports = {"loss": Loss()}

    @model_validator(mode="after")
    def _window_needs_rounds(self) -> Self:
        if self.window == "code" and self.tau == 0:
            raise ValueError("window='code' needs tau >= 1")
        return self

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss"})

    @property
    def ignores_weights(self) -> bool:
        return self.mean == "uniform"

    @property
    def softens(self) -> str:
        return "raise alpha"

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

    @np.errstate(over="ignore", invalid="ignore")
    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        losses = up["loss"]
        if len(ctx.times):  # who was drawn twice stands there twice
            places = ctx.listed
            deltas, losses, w = deltas[places], losses[places], (w / ctx.drawn)[places]
            ctx = replace(ctx, clients=ctx.clients[places], times=ctx.times[:0])
        # Everything below is odd in the updates, so the sign of G = -D is left to the end: D is
        # projected as it is, and kept as it is.
        updates = deltas.numpy()
        weights = (w if self.mean == "given" else ctx.uniform).double().numpy()
        gram = gram_matrix(updates)
        direction = mixture(self._internal(gram, weights, losses, ctx), updates)
        first = self.tau + 1 if self.window == "paper" else self.tau
        if self.tau and ctx.round >= first:
            self._external(direction, updates, s, ctx)
        length = math.sqrt(direction @ direction)

        sizes = np.abs(weights)
        most = math.sqrt(sizes.sum() * (sizes @ gram.diagonal()))
        square = float(weights @ gram @ weights)
        if square <= CANCELLED * most**2:
            plain = mixture(weights, updates)
            square = float(plain @ plain)
        # What is left of updates that cancel is rounding, of theirs or of the sum: rescaling would
        # make a step of it.
        wanted, scale = math.sqrt(square), 16 * most
        if length <= scale * _rounding(updates.dtype) or wanted <= scale * _rounding(gram.dtype):
            return torch.zeros_like(deltas[0]), self._remember(deltas, s, ctx)
        direction *= wanted / length
        found = torch.from_numpy(direction.astype(updates.dtype, copy=False))
        return found, self._remember(deltas, s, ctx)

    def _internal(self, gram: Numbers, weights: Numbers, losses: Tensor, ctx: Context) -> Numbers:
        """Return the average of the projected updates, as coefficients on the original ones."""
        m = len(gram)
        ascending = np.argsort(losses.numpy(), kind="stable")
        targets = ascending
        if self.order == "reverse":
            targets = ascending[::-1]
        elif self.order == "random":
            targets = generator(ctx.seed, "fedfv", ctx.round).permutation(m)
        kept = ascending[m - self.kept(m) :]
        if len(kept) == m:
            return weights
        changed = weights.copy()
        changed[kept] = 0.0
        found = project(gram, targets) @ changed
        found[kept] += weights[kept]
        return found

    def _external(self, g: Numbers, updates: Updates, s: Tensors, ctx: Context) -> None:
        """Project the average off the conflicting updates of each past round, oldest first."""
        for who, past in self._past(updates, s, ctx):
            if not who.any():
                continue
            conflicting = who & (inner_products(past, g) < 0)
            if not conflicting.any():
                continue
            total = mixture(conflicting.astype(np.float64), past)
            against, square = float(g @ total), float(total @ total)
            if against < 0 and square > TINY:
                total *= against / square
                g -= total

    def _past(self, updates: Updates, s: Tensors, ctx: Context) -> Iterator[tuple[Rows, Updates]]:
        """Yield each past round's updates, and which are of clients who did not come back since."""
        if self.window == "paper" and len(updates) == ctx.population:
            return
        t, when, who = ctx.round - 1, s["when"].tolist(), s["who"].numpy()
        offsets = range(self.tau, 0, -1) if self.window == "paper" else range(self.tau - 1, -1, -1)
        for offset in offsets:
            if offset == 0:
                yield np.ones(len(updates), dtype=np.bool_), updates
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
            yield ~back[who[slot]], s[_slot(slot)].numpy()

    def _remember(self, updates: Tensor, s: Tensors, ctx: Context) -> Tensors:
        if self.tau == 0:
            return s
        t, m = ctx.round - 1, len(updates)
        slot = t % self.tau
        who, when = s["who"].numpy().copy(), s["when"].numpy().copy()
        who[slot, :m], who[slot, m:], when[slot] = ctx.clients.numpy(), -1, t
        if m < ctx.cohort:
            updates = torch.cat([updates, updates.new_zeros(ctx.cohort - m, updates.shape[1])])
        return {
            **s,
            _slot(slot): updates,
            "who": torch.from_numpy(who),
            "when": torch.from_numpy(when),
        }


def _slot(place: int) -> str:
    """Return the name under which a past round's updates are kept."""
    return f"updates{place}"


def project(gram: Numbers, targets: Ids) -> Numbers:
    """Return every update projected off the targets in turn, as a column of coefficients.

    The coefficients on a target change at its turn alone: they become what each column in conflict
    adds of it to be in conflict no more. An update has itself once and is no target of its own:
    its product with itself never falls below minus its square, for projections shorten, so the
    larger of the two coefficients is the one.
    """
    squares = gram.diagonal()
    scale = np.divide(-1.0, squares, out=np.zeros(len(gram)), where=squares > TINY)
    against = gram * scale[:, None]
    columns, conflicts = np.eye(len(gram)), np.empty(len(gram))
    for j in targets.tolist():
        against[j].dot(columns, conflicts)
        coefficients = columns[j]
        np.maximum(conflicts, coefficients, out=coefficients)
    return columns


@functools.cache
def _rounding(kind: np.dtype[np.floating[Any]]) -> float:
    """Return the relative rounding of this type."""
    return float(np.finfo(kind).eps)
