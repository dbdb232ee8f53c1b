"""Rank-Core-Fed, reconstructed: clients whose model fell behind in its rank count more."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, TellsLoss, Tensors


@dataclass(frozen=True, config=STRICT)
class RankCoreFed(TellsLoss):
    r"""Maximise the logarithms of the ranks that clients give the model. Reconstructed.

    A client ranks the model among a pool of models by the share of those whose loss is no lower,
    smoothed to :math:`\Phi(z_k)` with :math:`z_k = (\mu_k - F_k)/s_k` and the mean and deviation of
    its losses on the pool. The gradient of :math:`\sum_k \log \Phi(z_k)` weighs it by

    .. math:: a_k \propto \frac{\varphi(z_k)}{s_k\, \Phi(z_k)}

    Parameters
    ----------
    pool
        Models in the pool: the last ones that the client received.
    least
        Smallest deviation, in units of loss, so that a client whose loss stands still does not take
        all the weight.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training. The server learns
    it, and keeps the last ones: they are the losses on the pool, so that no model is sent or
    measured twice. Until a client knows two, its weight is the mean one. Ranks do not depend on the
    scale of a client's loss. Reconstructed: neither text nor code of the paper was at hand, and
    this smooth surrogate is ours. Its pool holds the server's models alone, which mostly get better
    from round to round; so clients whose loss falls least, compared with itself, count most.

    Examples
    --------
    >>> losses, past = torch.tensor([1.0, 2.0]), torch.tensor([[2.0, 3.0], [2.0, 3.0]])
    >>> RankCoreFed().shares(losses, past, torch.tensor([2, 2])).numpy().round(3)
    array([0.015, 0.985])

    References
    ----------
    Chaudhury, Murhekar, Yuan, Li, Mehta, Procaccia. Fair federated learning via the proportional
    veto core. ICML 2024.
    """

    pool: int = Field(default=10, ge=2, description="models in the pool")
    least: float = Field(default=0.01, gt=0, description="smallest deviation of a client's losses")

    name = "rank_core_fed"
    paper = "Chaudhury et al. 2024 (Rank-Core-Fed)"
    reconstructed = True
    equalises = "rank of the model (proportional veto core)"
    replaces = frozenset({"weigh"})

    @property
    def softens(self) -> str:
        return "raise least"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {
            "past": torch.zeros(ctx.population, self.pool, dtype=torch.float64),
            "known": torch.zeros(ctx.population, dtype=torch.int64),
        }

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        losses = up["loss"].double()
        past, known = s["past"][ctx.clients], s["known"][ctx.clients]
        state = {
            "past": s["past"].index_put((ctx.clients, known % self.pool), losses),
            "known": s["known"].index_put((ctx.clients,), known + 1),
        }
        told = (losses, past, known.clamp_max(self.pool))
        each = self.shares(*(values[ctx.listed] for values in told))
        return torch.zeros_like(w).index_add(0, ctx.listed, each.to(w.dtype)), state

    def shares(self, losses: Tensor, past: Tensor, known: Tensor) -> Tensor:
        """Return the weights of these losses after those in the first ``known`` columns of past."""
        there = torch.arange(past.shape[1]) < known[:, None]
        count = known.clamp_min(1).double()
        mean = (past.double() * there).sum(1) / count
        spread = (((past.double() - mean[:, None]) * there).square().sum(1) / count).sqrt()
        spread = spread.clamp_min(self.least)
        z = (mean - losses) / spread
        # the density over the distribution function, by logarithms: neither may underflow
        ratio = -z.square() / 2 - spread.log() - torch.special.log_ndtr(z)
        ranked = known > 1
        m = len(losses)
        if not ranked.any():
            return torch.full((m,), 1 / m, dtype=torch.float64)
        share = torch.softmax(ratio.where(ranked, -torch.inf), 0)
        return torch.where(ranked, share * ranked.sum() / m, 1 / m)
