"""FedAvgM: heavy-ball momentum on the server."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Momentum(Part):
    r"""Add past directions to the new one.

    .. math:: v \leftarrow \beta v + (1 - \delta) D, \qquad x \leftarrow x + v

    Parameters
    ----------
    beta
        Share of the past direction that is kept.
    dampening
        :math:`\delta`; 0 is heavy ball (Hsu et al.), ``beta`` a moving average.

    Notes
    -----
    Sent: nothing more than FedAvg. Composes with every weighting: the direction of the round is
    whatever the other parts made of the updates.

    Examples
    --------
    >>> v = {"v": torch.tensor([1.0])}
    >>> Momentum(beta=0.5).step(torch.tensor([1.0]), {}, v, None)[0]
    tensor([1.5000])

    References
    ----------
    Hsu, Qi, Brown. Measuring the effects of non-identical data distribution for federated visual
    classification. 2019.
    """

    beta: float = Field(default=0.9, ge=0, lt=1, description="share of the past that is kept")
    dampening: float = Field(default=0.0, ge=0, lt=1, description="weight taken off the new")

    name = "momentum"
    paper = "Hsu et al. 2019 (FedAvgM)"

    def neutral(self) -> Part:
        return Momentum(beta=0.0)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"v": torch.zeros_like(x)}

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        v = self.beta * s["v"] + (1 - self.dampening) * direction
        return v, {"v": v}
