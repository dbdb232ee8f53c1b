"""PropFair: proportional fairness, by the logarithm of what is left to a bound on the loss."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Part

Beyond = Literal["tangent", "loss_over_eps", "loss_over_M"]


@dataclass(frozen=True, config=STRICT)
class PropFair(Part):
    r"""Maximise :math:`\sum_k p_k \log(M - F_k)`: what a client gains counts by what it has.

    With :math:`l` the mean loss of a batch, clients descend :math:`\psi(l)` in its place,

    .. math:: \psi(l) = \begin{cases} -\log(1 - l/M) & l \le M - \epsilon \\
              -\log(\epsilon/M) + (l - (M - \epsilon))/\epsilon & \text{else} \end{cases}

    whose slope is :math:`1/\max(M - l, \epsilon)`. The server averages as in FedAvg.

    Parameters
    ----------
    M
        The loss at which the utility :math:`M - F_k` is nothing. Take it above the loss of the
        first model, which is the logarithm of the number of classes.
    eps
        The least utility that the logarithm is taken of; beyond it the loss is a line.
    beyond
        That line: ``tangent`` goes on from the logarithm in value and slope (the paper's);
        ``loss_over_eps`` is :math:`l/\epsilon` and ``loss_over_M`` is :math:`l/M`, the two forms of
        the authors' code. With the last one the slope falls where a batch is served worst.

    Notes
    -----
    Sent: nothing more than FedAvg. The server learns nothing more. A batch of slope s is descended
    with a learning rate of s times the experiment's, so where all losses are near ``M - 1`` the
    method is FedAvg. With ``M <= eps`` every batch is on the line, and the tangent is FedAvg with a
    learning rate of 1/eps times: ``propfair(M=0.2, eps=0.2)``, a setting printed in a comparison of
    2023, is FedAvg of five times the learning rate.

    Examples
    --------
    >>> import torch
    >>> c = Client(0.1, 1, None, share=torch.tensor([0.5, 0.5]))
    >>> PropFair(M=2.0).loss(torch.tensor([0.5, 1.5]), None, None, c)
    tensor([0.6931, 0.6931])

    References
    ----------
    Zhang, Malekmohammadi, Chen, Yu. Proportional fairness in federated learning. TMLR 2023.
    """

    M: float = Field(default=5.0, gt=0, description="loss at which the utility is nothing")
    eps: float = Field(default=0.2, gt=0, description="least utility under the logarithm")
    beyond: Beyond = "tangent"

    name = "propfair"
    paper = "Zhang et al. 2023 (PropFair)"
    equalises = "loss (by proportional fairness)"

    @property
    def hooks(self) -> frozenset[str]:
        # At M = eps = 1 the tangent is the loss itself.
        plain = self.M == self.eps == 1 and self.beyond == "tangent"
        return super().hooks - {"loss"} if plain else super().hooks

    @property
    def softens(self) -> str:
        return "raise M"

    def neutral(self) -> Part:
        return PropFair(M=1.0, eps=1.0)

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        return self.disutility(c.mean(losses)).expand_as(losses)

    def loss_weights(self, losses: Tensor, share: Tensor) -> Tensor:
        mean = torch.where(share > 0, losses * share, 0).sum(-1, keepdim=True)
        left = self.M - mean
        slope = 1 / left.clamp_min(self.eps)
        if self.beyond == "loss_over_M":
            slope = slope.where(left >= self.eps, 1 / self.M)
        return share * share.sum(-1, keepdim=True) * slope

    def disutility(self, loss: Tensor) -> Tensor:
        """Return psi of a batch's mean loss."""
        left = self.M - loss
        under = left.clamp_min(self.eps)
        if self.beyond == "tangent":
            return -(under / self.M).log() + (under - left) / self.eps
        line = loss / (self.eps if self.beyond == "loss_over_eps" else self.M)
        return (-(under / self.M).log()).where(left >= self.eps, line)
