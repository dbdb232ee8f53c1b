"""q-FFL: weights that grow with a power of the loss (q-FedAvg and q-FedSGD)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import (
    STRICT,
    Client,
    Context,
    Finish,
    Loss,
    Norm,
    Part,
    Tensors,
    Weights,
    stacked,
)


@dataclass(frozen=True, config=STRICT)
class QFFL(Part):
    r"""Minimise :math:`\sum_k F_k^{q+1}/(q+1)`: the larger q, the more uniform the losses.

    With :math:`g_k = -D_k/\eta_l` (q-FedAvg; with one full-batch step this is q-FedSGD),
    :math:`L = 1/\eta_l` and :math:`F_k` the training loss before local training,

    .. math:: x \leftarrow x - \frac{\sum_S F_k^q g_k}
              {\sum_S \left(q F_k^{q-1} \|g_k\|^2 + L F_k^q\right)}

    Parameters
    ----------
    q
        Exponent; 0 is uniform FedAvg.
    by_size
        Multiply both sums' terms by the client's examples (for uniform sampling of clients).
    static_step
        Use ``h_k = L`` for every client: the step no longer shrinks with the gradients.
    signal
        ``pre`` uses the loss of the received model (the paper), ``post`` that of the trained one on
        the same examples (easyFL's code of 2021, hence the rows of the FedFV paper).

    Notes
    -----
    Sent up: two floats more than FedAvg, the loss and the squared norm of the update. The server
    learns each client's loss. As in the authors' code there is no factor ``n_k``: size enters
    through sampling. Numerator and denominator are divided by the largest loss to the power q-1,
    which leaves the quotient alone and keeps large q finite; 1e-10 is added to the losses.

    Examples
    --------
    >>> QFFL(q=0.0).hooks >= {"weigh"}
    True

    References
    ----------
    Li, Sanjabi, Beirami, Smith. Fair resource allocation in federated learning. ICLR 2020.
    """

    q: float = Field(default=1.0, ge=0, description="exponent on the loss")
    by_size: bool = Field(default=False, description="multiply by the number of examples")
    static_step: bool = Field(default=False, description="keep h_k = 1/lr")
    signal: Literal["pre", "post"] = "pre"

    name = "qffl"
    paper = "Li et al. 2020 (q-FFL)"
    equalises = "loss (loss parity)"
    learns = "its update and its training loss"
    replaces = frozenset({"weigh"})
    reports = {"loss": Loss(), "norm2": Norm()}
    behind = {
        "masks_update": "'qffl' takes the length of the update, which '{other}' changes: write "
        "'{other}' first"
    }

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"end_loss" if self.signal == "post" else "loss"})

    @property
    def own_weights(self) -> Weights:
        return "size" if self.by_size else "uniform"

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"fits_step", "no_distribution"})

    @property
    def softens(self) -> str:
        return "lower q"

    def neutral(self) -> Part:
        return QFFL(q=0.0)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        loss = c.end_loss if self.signal == "post" else c.loss
        return Finish(delta, {"loss": loss, "norm2": (delta / c.lr).square().sum(-1)})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        loss = up["loss"].double() + 1e-10
        largest, lipschitz = loss.max(), 1 / ctx.lr
        ratio = loss / largest
        numerator = largest * ratio**self.q
        h = self.q * ratio ** (self.q - 1) * up["norm2"].double() + lipschitz * numerator
        if self.static_step:
            h, numerator = torch.full_like(h, lipschitz), loss**self.q
        if self.by_size:
            numerator, h = numerator * ctx.n, h * ctx.n
        numerator, h = numerator * ctx.drawn, h * ctx.drawn
        return (lipschitz * numerator / h.sum()).to(w.dtype), s
