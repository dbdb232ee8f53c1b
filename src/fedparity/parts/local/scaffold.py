"""SCAFFOLD and FedPVR: control variates against client drift, on all or on the last layers."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import (
    STRICT,
    Affine,
    Client,
    Context,
    Finish,
    Part,
    Plan,
    Tensors,
    Vector,
    stacked,
)
from fedparity.method.privacy import ADDS_TO_GRADIENTS


@dataclass(frozen=True, config=STRICT)
class Scaffold(Part):
    r"""Correct every local step by the difference between the clients' mean gradient and one's own.

    .. math:: y \leftarrow y - \eta_l (g_k(y) - c_k + c)

    and afterwards, by option II, :math:`c_k^+ = c_k - c + (x - y)/(\tau_k\eta_l)`, by option I,
    :math:`c_k^+ = \nabla F_k(x)`; the server adds :math:`\sum_S p_k (c_k^+ - c_k)` to :math:`c`.

    Parameters
    ----------
    option
        2 uses the steps just taken, 1 a full gradient at the received model (one more pass).

    Notes
    -----
    Sent: d floats more than FedAvg each way, the control variates. The server learns the change of
    each client's mean gradient. Weights are the experiment's, in both sums, so that
    :math:`c = \sum_k p_k c_k` after every round, whoever took part; the paper's are uniform. Option
    II assumes plain SGD. Buffers are never covered.

    Examples
    --------
    >>> Scaffold().option
    2

    References
    ----------
    Karimireddy et al. SCAFFOLD: stochastic controlled averaging for federated learning. ICML 2020.
    """

    option: Literal[1, 2] = 2

    name = "scaffold"
    paper = "Karimireddy et al. 2020 (SCAFFOLD)"
    learns = "its update and the change of its control variate"
    reports = {"dc": Vector()}
    conflicts = {
        "control_variates": "control variates correct the steps already in '{other}': keep one",
        "start": "control variates would correct parameters that '{other}' keeps on the clients: "
        "keep one",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"control_variates", ADDS_TO_GRADIENTS})

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"grad"} if self.option == 1 else set())

    def covered_from(self, layout: Layout) -> int:
        """Return where in the vector the controlled parameters begin."""
        return 0

    def validate(self, ctx: Context) -> None:
        self.covered_from(ctx.layout)
        if self.option == 2 and not ctx.solver.plain:
            raise InputError(
                f"'{self.name}' with option=2 needs plain SGD (no momentum, weight decay, clipping "
                "or Adam): use option=1"
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"c": torch.zeros_like(x[self.covered_from(ctx.layout) :])}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"c": torch.zeros_like(x[self.covered_from(layout) :])}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(shared={"c": s["c"]})

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        start = self.covered_from(c.layout)
        corrected = g[start:] - c.state["c"] + c.down["c"]
        return torch.cat([g[:start], corrected]) if start else corrected

    def affine(self, c: Client) -> Affine:
        return Affine(shift=c.down["c"] - c.state["c"], start=self.covered_from(c.layout))

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        start = self.covered_from(c.layout)
        if self.option == 1:
            new = c.grad[..., start:]
        else:
            moved = (c.anchor - c.end)[..., start:]
            new = c.state["c"] - c.down["c"] + moved / (c.steps * c.lr)[..., None]
        return Finish(delta, {"dc": new - c.state["c"]}, {"c": new})

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        return direction, {"c": s["c"] + ctx.shares[ctx.clients] @ up["dc"]}


@dataclass(frozen=True, config=STRICT)
class PVR(Scaffold):
    r"""SCAFFOLD on the last layers only: partial variance reduction.

    Parameters
    ----------
    layers
        How many of the last layers, or their names; 0 is FedAvg.
    option
        See :class:`Scaffold`.

    Notes
    -----
    Sent: the floats of these layers more than FedAvg, each way. Outside them the steps are plain.

    Examples
    --------
    >>> PVR(layers=1).layers
    1

    References
    ----------
    Li et al. On the effectiveness of partial variance reduction in federated learning with
    heterogeneous data. CVPR 2023.
    """

    layers: Annotated[int, Field(ge=0)] | tuple[str, ...] = Field(
        default=2, description="last layers, by count or name"
    )

    name = "pvr"
    paper = "Li et al. 2023 (FedPVR)"

    def neutral(self) -> Part:
        return PVR(layers=0)

    def covered_from(self, layout: Layout) -> int:
        return layout.tail(self.layers)
