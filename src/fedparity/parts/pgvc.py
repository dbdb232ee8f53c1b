"""FedPGVC: the variance of the last layers' gradients is controlled by a loss-weighted gradient."""

from __future__ import annotations

from itertools import takewhile
from typing import Annotated, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.core.layout import Layout
from fedparity.core.part import STRICT, Client, Context, Part, Tensors
from fedparity.errors import InputError
from fedparity.parts.prox import Prox

Mode = Literal["scalar", "literal", "abs", "second_moment", "penalty"]


@dataclass(frozen=True, config=STRICT)
class PGVC(Part):
    r"""Scale the steps of the last layers by how the batch's losses weigh its gradients.

    On the last layers, with :math:`g = \frac1B\sum_b \nabla l_b` and
    :math:`\rho = \frac1B\sum_b l_b \nabla l_b` (one more backward pass through these layers alone),
    the gradient becomes

    ===================  ===============================================================
    ``scalar``           :math:`\min(\|\rho\|/\|g\|, s_{max})\, g`
    ``literal``          :math:`\rho \odot g` (the paper's Eq. 15; no descent direction)
    ``abs``              :math:`|\rho| \odot g`
    ``second_moment``    :math:`\rho`
    ``penalty``          :math:`g + \kappa \rho`
    ===================  ===============================================================

    Parameters
    ----------
    layers
        How many of the last layers, or their names; 0 is FedAvg.
    mode
        See above.
    s_max
        Largest factor of ``scalar``.
    kappa
        Weight of :math:`\rho` in ``penalty``.
    literal_server
        The paper's server step with this :math:`\eta_g`: :math:`(1-\eta_g) x + \frac1K\sum_k y_k`,
        which is an average only for 1. None takes the plain step.

    Notes
    -----
    Sent: nothing more than FedAvg; the server learns nothing more. With equal losses Eq. 15 is
    :math:`-\eta l\, g \odot g`: parameters can only decrease, whatever the sign of the gradient, so
    it is offered for reproduction only. The paper's algorithm indexes :math:`\rho` with the round
    before, its text computes it from the same batch: we do the latter, for both blocks at the same
    parameters. The public script scales weights, not gradients, and is another method. Parts that
    change gradients stand behind it, except ``prox``: in ``prox+pgvc`` the proximal gradient is
    scaled, in ``pgvc+prox`` the batch's alone.

    Examples
    --------
    >>> PGVC().mode
    'scalar'

    References
    ----------
    Sahoo et al. Harnessing heterogeneity: improving convergence through partial variance control
    in federated learning. TMLR 2026.
    """

    layers: Annotated[int, Field(ge=0)] | tuple[str, ...] = Field(
        default=2, description="last layers, by count or name"
    )
    mode: Mode = "scalar"
    s_max: float = Field(default=10.0, gt=0, description="largest factor of mode scalar")
    kappa: float = Field(default=0.1, ge=0, description="weight of the second gradient in penalty")
    literal_server: float | None = Field(default=None, gt=0, le=1, description="eta_g of Eq. 16")

    name = "pgvc"
    paper = "Sahoo et al. 2026 (FedPGVC)"

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"step"} if self.literal_server is None else set())

    def neutral(self) -> Part:
        return PGVC(layers=0)

    def validate(self, ctx: Context) -> None:
        self.second_from(ctx.layout)
        before = takewhile(lambda part: part is not self, ctx.parts)
        changing = [p.name for p in before if "grad" in p.hooks and not isinstance(p, Prox)]
        if changing:
            raise InputError(
                f"'pgvc' scales the gradient of the batch, which '{changing[0]}' would have "
                "changed before: write 'pgvc' first"
            )

    def second_from(self, layout: Layout) -> int:
        return layout.tail(self.layers)

    def second(self, losses: Tensor, c: Client) -> Tensor:
        return losses.detach() * losses

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        start = self.second_from(c.layout)
        last, rho = g[start:], c.second[start:]
        if self.mode == "scalar":
            factor = rho.norm() / (last.norm() + 1e-12)
            last = factor.clamp_max(self.s_max) * last
        elif self.mode == "literal":
            last = rho * last
        elif self.mode == "abs":
            last = rho.abs() * last
        elif self.mode == "second_moment":
            last = rho
        else:
            last = last + self.kappa * rho
        return torch.cat([g[:start], last])

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        assert self.literal_server is not None
        return direction + (1 - self.literal_server) * ctx.x, s
