"""AAggFF: mixture weights decided by online convex optimisation from bounded responses."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, TellsLoss, Tensors
from fedparity.toolbox.shortest import min_norm

CDF = Literal["weibull", "exponential", "frechet", "normal", "gumbel", "logistic"]

NOTHING = 1e-12
"""Share of the mixture below which those who answer have none but of rounding."""


@dataclass(frozen=True, config=STRICT)
class AAggFF(TellsLoss):
    r"""Choose the mixture against adversarial losses :math:`-\log(1 + \langle p, r_t\rangle)`.

    With :math:`u_k` a distribution function of the loss over the mean loss, the response is
    :math:`r_k = C u_k` for those who answer, a share C of all K clients (:math:`u_k/K` with
    ``newton``). For all clients it is estimated as
    :math:`\tilde r_k = \bar r + [k \in S] (r_k - \bar r)/C`. The mixture then moves,

    .. math:: p_{t+1} = \arg\min_{p} \sum_{s \le t} \Bigl[\langle g_s, p\rangle + \frac{K}{8}
              \langle g_s, p - p_s\rangle^2\Bigr] + 2\|p\|^2, \qquad
              g_t = \frac{-r_t}{1 + \langle p_t, r_t\rangle}

    (``newton``), or along the linearised losses with an entropy,

    .. math:: p_{t+1} = \mathrm{softmax}\Bigl(\frac{-\sqrt{\ln K}}{(2 + C)\sqrt{t+1}}
              \sum_{s \le t} g_s\Bigr), \qquad g = \frac{-\tilde r}{1 + \bar r} +
              \bar r\, \frac{\langle p, \tilde r - \bar r\rangle}{(1 + \bar r)^2}

    (``ftrl``), and the updates of this round are averaged by their share of it.

    Parameters
    ----------
    cdf
        The distribution function: ``weibull``, ``exponential``, ``frechet``, ``normal``, ``gumbel``
        or ``logistic``.
    solver
        ``newton`` is the paper's cross-silo form (AAggFF-S), an online Newton step; ``ftrl`` its
        cross-device form (AAggFF-D); ``auto`` takes ``newton`` where every client is asked in every
        round.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training. The server learns
    it, and keeps a number a client (``ftrl``) or a matrix of clients by clients (``newton``). The
    weights depend on the ratios of the losses alone. The paper's Newton form knows no absent
    clients; here their response is the mean one, and where the mixture leaves nothing to those who
    answer they count alike. Who was drawn twice is averaged twice; its share of the mixture moves
    once. The public code differs from the paper in three places, in which we follow the paper: its
    normal function falls with the loss and leaves [0, 1], its Newton step drops the term in
    :math:`p_s`, and its estimate leaves out :math:`\bar r` for those who answer.

    Examples
    --------
    >>> AAggFF().response(torch.tensor([1.0, 3.0]))
    tensor([0.3085, 0.6915])

    References
    ----------
    Hahn, Kim, Lee. Pursuing overall welfare in federated learning through sequential decision
    making. ICML 2024.
    """

    cdf: CDF = Field(default="normal", description="distribution function of the response")
    solver: Literal["auto", "newton", "ftrl"] = "auto"

    name = "aaggff"
    paper = "Hahn et al. 2024 (AAggFF)"
    equalises = "loss (loss parity)"
    replaces = frozenset({"weigh"})

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        K = ctx.population
        state = {
            "mixture": torch.full((K,), 1 / K, dtype=torch.float64),
            "slopes": torch.zeros(K, dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
        }
        if self._newton(ctx):
            state["products"] = torch.zeros(K, K, dtype=torch.float64)
        return state

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        share = len(ctx.clients) / ctx.population
        u = self.response(up["loss"].double())
        r = u / ctx.population if self._newton(ctx) else share * u
        mean = r.mean()
        everyone = mean.repeat(ctx.population)
        everyone[ctx.clients] += (r - mean) / share
        if self._newton(ctx):
            state = _newton_step(s, everyone)
        else:
            state = _ftrl_step(s, everyone, mean, share)
        mine = ctx.drawn * state["mixture"][ctx.clients]
        if float(mine.sum()) < NOTHING:
            mine = ctx.drawn.double()
        return (mine / mine.sum()).to(w.dtype), state

    def response(self, losses: Tensor) -> Tensor:
        """Return the distribution function of the losses over their mean, in [0, 1]."""
        mean = losses.mean()
        x = losses / mean if mean > 0 else torch.ones_like(losses)
        if self.cdf == "weibull":
            return 1 - (-x.square()).exp()
        if self.cdf == "exponential":
            return 1 - (-x).exp()
        if self.cdf == "frechet":
            return (-1 / x).exp()
        if self.cdf == "normal":
            return (1 + torch.erf((x - 1) / math.sqrt(2))) / 2
        if self.cdf == "gumbel":
            return (-(1 - x).exp()).exp()
        return torch.sigmoid(x - 1)

    def _newton(self, ctx: Context) -> bool:
        return self.solver == "newton" or (self.solver == "auto" and ctx.cohort == ctx.population)


def _newton_step(s: Tensors, r: Tensor) -> Tensors:
    """Return the state after one online Newton step, a quadratic program on the simplex."""
    p, K = s["mixture"], len(r)
    beta = K / 4
    g = -r / (1 + p @ r)
    products = s["products"] + beta * torch.outer(g, g)
    slopes = s["slopes"] + g - beta * g * (g @ p)
    # On the simplex the linear term is a quadratic one, and dividing all changes nothing.
    gram = 4 * torch.eye(K, dtype=torch.float64) + products
    gram = (gram + slopes + slopes[:, None]) / 4
    found = min_norm(gram.numpy(), p.numpy())
    return {
        "mixture": torch.from_numpy(found),
        "slopes": slopes,
        "rounds": s["rounds"] + 1,
        "products": products,
    }


def _ftrl_step(s: Tensors, r: Tensor, mean: Tensor, share: float) -> Tensors:
    """Return the state after one step along the linearised losses."""
    p, rounds = s["mixture"], s["rounds"] + 1
    bound = 1 + mean * p.sum()
    g = -r / bound + mean * (p @ (r - mean)) / bound.square()
    slopes = s["slopes"] + g
    scale = math.sqrt(math.log(len(r))) / ((2 + share) * torch.sqrt(rounds.double() + 1))
    return {"mixture": torch.softmax(-scale * slopes, 0), "slopes": slopes, "rounds": rounds}
