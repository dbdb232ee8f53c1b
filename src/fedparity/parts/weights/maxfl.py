"""MaxFL: as many clients as possible below a threshold of their own."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Finish, Gap, Loss, Part, Tensors, stacked


@dataclass(frozen=True, config=STRICT)
class MaxFL(Part):
    r"""Maximise how many clients reach their threshold, :math:`F_k \le \rho_k`.

    The count is relaxed to :math:`\frac1K \sum_k \mathrm{sigmoid}(F_k - \rho_k)`, whose gradient
    weighs clients by the slope of the sigmoid,

    .. math:: x \leftarrow x + \frac{\sum_S q_k D_k}{\sum_S q_k + \epsilon}, \qquad
              q_k = s_k (1 - s_k), \quad s_k = \mathrm{sigmoid}(F_k - \rho_k)

    Parameters
    ----------
    threshold
        :math:`\rho_k`: ``lstar`` is the best loss that the client reaches alone, found or given by
        the experiment's ``lstar``, and compared on validation examples; a number is the same
        training loss for all.
    eps
        Keeps the quotient finite where no client is near its threshold; the round then moves
        little.

    Notes
    -----
    Sent up: one float more than FedAvg, :math:`F_k - \rho_k` (``lstar``) or the training loss (a
    number). The server learns it. A client far from its threshold, on either side, hardly counts:
    it is served already, or out of reach. So the method gives up on the clients that are served
    worst, on purpose; look at the worst client beside the share of those content, which the log
    has as ``content``.

    Examples
    --------
    >>> MaxFL().appeal(torch.tensor([0.0, 2.0, -2.0]))
    tensor([0.2500, 0.1050, 0.1050])

    References
    ----------
    Cho, Jhunjhunwala, Li, Smith, Joshi. Maximizing global model appeal in federated learning.
    TMLR 2024.
    """

    threshold: Literal["lstar"] | float = Field(default="lstar", description="loss to get below")
    eps: float = Field(default=1e-6, gt=0, description="added to the sum of the weights")

    name = "maxfl"
    paper = "Cho et al. 2024 (MaxFL)"
    equalises = "nothing: more clients reach a threshold"
    learns = "its update and how far its loss is from its threshold"
    replaces = frozenset({"weigh"})
    reports = {"gap": Gap(), "loss": Loss()}

    @property
    def reads(self) -> frozenset[str]:
        alone = {"validation_loss", "lstar"}
        return frozenset(alone if self.threshold == "lstar" else {"loss"})

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"content": torch.zeros((), dtype=torch.float64)}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        if self.threshold == "lstar":
            return Finish(delta, {"gap": c.validation_loss - c.lstar})
        return Finish(delta, {"loss": c.loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        gap = up["gap"] if self.threshold == "lstar" else up["loss"] - float(self.threshold)
        q = self.appeal(gap.double()) * ctx.drawn
        content = (gap <= 0).double().mean()
        return (q / (q.sum() + self.eps)).to(w.dtype), {"content": content}

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"content": float(s["content"])}

    def appeal(self, gap: Tensor) -> Tensor:
        """Return the slope of the sigmoid at these gaps."""
        return torch.sigmoid(gap) * torch.sigmoid(-gap)
