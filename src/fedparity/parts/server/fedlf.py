"""FedLF: in every layer a common descent direction, one of whose rows is towards equal losses."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, TellsLoss, Tensors
from fedparity.toolbox.products import gram_matrix
from fedparity.toolbox.shortest import min_norm

COMMON = 1e-8
"""Length of the direction, in lengths of the gradients, below which there is no common descent."""
EQUAL = 1e-6
"""Distance from equal losses, for losses of length 1, that is rounding."""
CONFLICT = 1e-6
"""Product of a gradient and the direction up to which it may rise: rounding."""


@dataclass(frozen=True, config=STRICT)
class FedLF(TellsLoss):
    r"""Descend layer by layer in a direction common to all clients, and towards equal losses.

    With :math:`g_k = -D_k / \eta_l` and, in layer l, :math:`q_{kl}` that piece of it at the
    clients' mean length :math:`\mu_l`,

    .. math:: d_l = \arg\min \|z\|^2 \text{ over the hull of } q_{1l}, \dots, q_{ml},\ 
              \mu_l \frac{\sum_k h_k q_{kl}}{\|\sum_k h_k q_{kl}\|}, \qquad
              h \propto (u \cdot v)\, v - u, \quad v = F / \|F\|, \quad u = 1 / \sqrt m

    and of the clients that are away the last gradients, at the same length. All layers together are
    brought to the length of the mean gradient: :math:`x \leftarrow x - \eta_l d \|\bar g\|/\|d\|`.
    While some :math:`g_k \cdot d < 0`, d is halved, down to its own length.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training. The server learns
    it, and needs individual updates, of which it keeps the last of every client where a cohort is
    asked; those count that were heard at most as many rounds ago as it takes to ask all once. A
    layer is a tensor of the model, weight and bias apart, as in the authors' code. That takes one
    full gradient a client; here updates are what local training has made. A client without a
    gradient in a layer has no row there. Where no common descent is left a layer stays. Weights of
    the experiment or of others have no say.

    Examples
    --------
    >>> FedLF().towards_equal(torch.tensor([2.0, 1.0])).round(decimals=4)
    tensor([ 0.0632, -0.1265])

    References
    ----------
    Pan, Li, Yu, Wang, Wang, Tang, Zhao. FedLF: layer-wise fair federated learning. AAAI 2024.
    """

    name = "fedlf"
    paper = "Pan et al. 2024 (FedLF)"
    equalises = "loss (common descent in every layer, with fair guidance)"
    ignores_weights = True
    overwrites = frozenset({"last"})

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        away = ctx.population if ctx.cohort < ctx.population else 0
        return {"last": x.new_zeros(away, len(x)), "heard": torch.zeros(away, dtype=torch.int64)}

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        own = deltas / -ctx.lr
        g, losses = own[ctx.listed], up["loss"][ctx.listed]
        away = self._away(s, ctx)
        h = self.towards_equal(losses.double()).to(g.dtype)
        d = torch.zeros_like(g[0])
        for slot in ctx.layout.slots:
            layer = slice(slot.start, slot.stop)
            d[layer] = self._direction(g[:, layer], h, away[:, layer])
        state = s
        if len(s["heard"]):
            state = {
                "last": s["last"].index_copy_(0, ctx.clients, own),
                "heard": s["heard"].index_fill(0, ctx.clients, ctx.round),
            }
        return -ctx.lr * self._lengthened(d, g), state

    def towards_equal(self, losses: Tensor) -> Tensor:
        """Return the slope of minus the cosine between losses and ones by each loss."""
        length = losses.norm()
        if length == 0:
            return torch.zeros_like(losses)
        v, u = losses / length, torch.full_like(losses, 1 / math.sqrt(len(losses)))
        found: Tensor = (u @ v) * v - u
        return found / length if found.norm() > EQUAL else torch.zeros_like(losses)

    @staticmethod
    def _away(s: Tensors, ctx: Context) -> Tensor:
        """Return the last gradients of clients that are away, ``[a, d]``."""
        heard = s["heard"]
        met = int((heard > 0).sum())
        reach = met // max(1, ctx.cohort)
        there = (heard > 0) & (ctx.round - heard <= reach)
        there[ctx.clients[ctx.clients < len(heard)]] = False
        return s["last"][there if met > ctx.cohort else there & False]

    @staticmethod
    def _direction(g: Tensor, h: Tensor, away: Tensor) -> Tensor:
        """Return the direction of a layer from its gradients ``[m, l]``."""
        lengths = g.double().norm(dim=1)
        mean = float(lengths.mean())
        some = lengths > 0
        if not some.any():
            return torch.zeros_like(g[0])
        own = g[some] * (mean / lengths[some])[:, None].to(g.dtype)
        rows = torch.cat([own, (h[some] @ own)[None], away])
        each = rows.double().norm(dim=1)
        rows = rows[each > 0] * (mean / each[each > 0])[:, None].to(g.dtype)
        gram = gram_matrix(rows.numpy()) / mean**2
        mixture = min_norm(gram, np.full(len(rows), 1 / len(rows)))
        d = torch.from_numpy(mixture).to(rows.dtype) @ rows
        return d if float(d.double().norm()) > COMMON * mean else torch.zeros_like(d)

    @staticmethod
    def _lengthened(d: Tensor, g: Tensor) -> Tensor:
        """Return the direction at the length of the mean gradient, or a shorter one."""
        own = float(d.double().norm())
        if own == 0:
            return d
        found = d * (float(g.double().mean(0).norm()) / own)
        while float((g @ found).min()) < -CONFLICT:
            if float(found.double().norm()) <= 2 * own:
                return d
            found = found / 2
        return found
