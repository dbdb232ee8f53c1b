"""TERM: weights tilted by the losses, of clients and, if wanted, of examples inside a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Finish, Loss, Part, Tensors, Weights, stacked
from fedparity.method.facts import PerExample
from fedparity.method.hints import of_losses

LARGEST = 80.0
"""The largest exponent: its exponential is a number of single precision."""


@dataclass(frozen=True, config=STRICT)
class TERM(Part):
    r"""Minimise the tilted mean :math:`\frac1t \log \sum_k \pi_k e^{t F_k}` of the losses.

    .. math:: x \leftarrow x + \sum_k a_k D_k, \qquad a_k \propto \pi_k e^{t F_k}

    With ``inner`` the loss of a client is itself a tilted mean, of its examples:
    :math:`F_k = \frac1s \log \frac{1}{n_k} \sum_i e^{s l_i}`.

    Parameters
    ----------
    t
        Tilt among clients: above 0 the clients of large losses count more, below 0 less (robust to
        broken ones); 0 is FedAvg with the prior.
    inner
        Tilt s among the examples of a client, of either sign; 0 is the plain mean.
    prior
        :math:`\pi_k`: ``uniform``, or the share of examples (``size``).

    Notes
    -----
    Sent up: one float more than FedAvg, the loss before local training, with ``inner`` the tilted
    one. The server learns it. Local steps descend the tilted mean of their batch; in the report
    exponents above 80 count as 80. The weights are normalised over those who answer. The authors'
    script forms client models :math:`x + a_k D_k` and then averages them, so that its steps are 1/m
    of FedAvg's even at t = 0, and offers a running normaliser whose first round is twice too large:
    we do neither.
    With t = 1/tau and losses before training this is FedEBA's softmax.

    Examples
    --------
    >>> TERM(t=1.0).tilted(torch.tensor([1.0, 2.0, 0.5]), torch.ones(3)).numpy().round(4)
    array([0.2312, 0.6285, 0.1402])

    References
    ----------
    Li, Beirami, Sanjabi, Smith. Tilted empirical risk minimization. ICLR 2021.
    """

    t: float = Field(default=1.0, description="tilt among clients")
    inner: float = Field(default=0.0, description="tilt among the examples of a client")
    prior: Literal["uniform", "size"] = "uniform"

    name = "term"
    paper = "Li et al. 2021 (TERM)"
    equalises = "loss (loss parity)"
    learns = "its update and its training loss"
    replaces = frozenset({"weigh"})
    reports = {"loss": Loss()}

    @property
    def own_facts(self) -> Mapping[str, PerExample]:
        return {"tilted_loss": self._exponential} if self.inner else {}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"tilted_loss" if self.inner else "loss"})

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.inner else super().hooks - {"loss"}

    @property
    def own_weights(self) -> Weights:
        return self.prior

    @property
    def softens(self) -> str:
        return "lower t"

    def neutral(self) -> Part:
        return TERM(t=0.0)

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        exponents = torch.where(c.share > 0, self.inner * losses, -torch.inf)
        top = exponents.detach().amax().clamp_min(-1e30)
        # The largest example adds its whole share: the bound only serves a batch without examples.
        mean = c.mean((exponents - top).exp()).clamp_min(1e-30)
        return ((top + mean.log()) / self.inner).expand_as(losses)

    def loss_weights(self, losses: Tensor, share: Tensor) -> Tensor:
        exponents = torch.where(share > 0, self.inner * losses, -torch.inf)
        top = exponents.amax(-1, keepdim=True).clamp_min(-1e30)
        each = share * (exponents - top).exp()
        whole = share.sum(-1, keepdim=True)
        return whole * each / each.sum(-1, keepdim=True).clamp_min(1e-30)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        loss = c.tilted_loss.log() / self.inner if self.inner else c.loss
        return Finish(delta, {"loss": loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        prior = ctx.n if self.prior == "size" else torch.ones_like(ctx.n)
        return self.tilted(up["loss"], prior * ctx.drawn).to(w.dtype), s

    def tilted(self, losses: Tensor, prior: Tensor) -> Tensor:
        """Return the weights of these losses, in float64."""
        return torch.softmax(prior.double().log() + self.t * losses.double(), 0)

    @of_losses
    def _exponential(self, losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
        return (self.inner * losses).clamp_(-LARGEST, LARGEST).exp_()
