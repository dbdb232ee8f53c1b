"""Core-Fed, reconstructed: proportional fairness by weights of clients."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, TellsLoss, Tensors, Weights


@dataclass(frozen=True, config=STRICT)
class CoreFed(TellsLoss):
    r"""Maximise :math:`\sum_k \log(M - F_k)` by weights of clients. Reconstructed.

    .. math:: x \leftarrow x + \sum_k a_k D_k, \qquad
              a_k \propto \frac{\pi_k}{\max(M - F_k, \epsilon)}

    Parameters
    ----------
    M
        The loss at which the utility :math:`M - F_k` is nothing. Take it above the loss of the
        first model, which is the logarithm of the number of classes.
    eps
        The least utility: no client counts more than one at :math:`M - \epsilon`.
    prior
        :math:`\pi_k`: ``uniform``, or the share of examples (``size``).

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss before local training. The server learns
    it. A model of largest sum is in the core where losses are convex: no group of clients has
    another model whose utility, times the group's share of all clients, is above the present one
    for each of them. Reconstructed from the idea of the paper, neither the text nor code of which
    was at hand: this is PropFair at the level of clients, without its loss inside the steps.

    Examples
    --------
    >>> CoreFed(M=3.0).shares(torch.tensor([1.0, 2.0, 0.5]), torch.ones(3))
    tensor([0.2632, 0.5263, 0.2105])

    References
    ----------
    Chaudhury, Li, Kang, Li, Mehta. Fairness in federated learning via core-stability. NeurIPS 2022.
    """

    M: float = Field(default=5.0, gt=0, description="loss at which the utility is nothing")
    eps: float = Field(default=0.2, gt=0, description="least utility")
    prior: Literal["uniform", "size"] = "uniform"

    name = "core_fed"
    paper = "Chaudhury et al. 2022 (Core-Fed)"
    reconstructed = True
    equalises = "loss (by proportional fairness)"
    replaces = frozenset({"weigh"})

    @property
    def own_weights(self) -> Weights:
        return self.prior

    @property
    def softens(self) -> str:
        return "raise M"

    def neutral(self) -> Part:
        return CoreFed(M=1.0, eps=1.0)

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        prior = ctx.drawn * (
            ctx.n.double() if self.prior == "size" else torch.ones_like(up["loss"])
        )
        return self.shares(up["loss"].double(), prior).to(w.dtype), s

    def shares(self, losses: Tensor, prior: Tensor) -> Tensor:
        """Return the weights of these losses."""
        each = prior / (self.M - losses).clamp_min(self.eps)
        return each / each.sum()
