"""FedOpt: adaptive steps on the server (FedAdam, FedYogi, FedAdagrad)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import Self

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Adaptive(Part):
    r"""Scale every coordinate of the direction by its past size.

    .. math:: M \leftarrow \beta_1 M + (1-\beta_1) D, \qquad
              x \leftarrow x + \eta \frac{M}{\sqrt V + \tau}

    with :math:`V \leftarrow V + D^2` (``adagrad``),
    :math:`\beta_2 V + (1-\beta_2) D^2` (``adam``) or
    :math:`V - (1-\beta_2) D^2 \mathrm{sign}(V - D^2)` (``yogi``); :math:`V_0 = \tau^2`.

    Parameters
    ----------
    rule
        ``adam``, ``yogi`` or ``adagrad``.
    eta
        Server step.
    beta1, beta2
        Memories of direction and size. None for ``beta1`` is 0.9, and 0 for ``adagrad``, which has
        no first moment.
    tau
        Smallest scale.

    Notes
    -----
    Sent: nothing more than FedAvg. No bias correction, as in the paper; the sign of Yogi is that of
    :math:`V - D^2`. Composes with every weighting. Its step does not shrink with the updates, so
    there is no setting that is FedAvg.

    Examples
    --------
    >>> Adaptive(rule="yogi").beta2
    0.99

    References
    ----------
    Reddi et al. Adaptive federated optimization. ICLR 2021.
    """

    rule: Literal["adam", "yogi", "adagrad"] = "adam"
    eta: float = Field(default=0.1, gt=0, description="server step")
    beta1: float | None = Field(default=None, ge=0, lt=1, description="memory of the direction")
    beta2: float = Field(default=0.99, ge=0, le=1, description="memory of the size")
    tau: float = Field(default=1e-3, gt=0, description="smallest scale")

    name = "adaptive"
    paper = "Reddi et al. 2021 (FedOpt)"

    @model_validator(mode="after")
    def _usual_memory(self) -> Self:
        if self.beta1 is None:
            object.__setattr__(self, "beta1", 0.0 if self.rule == "adagrad" else 0.9)
        return self

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"m": torch.zeros_like(x), "v": torch.full_like(x, self.tau**2)}

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        assert self.beta1 is not None
        m = self.beta1 * s["m"] + (1 - self.beta1) * direction
        square, v = direction.square(), s["v"]
        if self.rule == "adagrad":
            v = v + square
        elif self.rule == "adam":
            v = self.beta2 * v + (1 - self.beta2) * square
        else:
            v = v - (1 - self.beta2) * square * torch.sign(v - square)
        return self.eta * m / (v.sqrt() + self.tau), {"m": m, "v": v}
