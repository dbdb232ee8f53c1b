"""lp-proj: models of the clients' own, tied to one short vector through a random projection."""

from __future__ import annotations

from functools import lru_cache

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import generator
from fedparity.method import STRICT, Client, Context, Finish, Part, Plan, Tensors, Vector


@dataclass(frozen=True, config=STRICT)
class LpProj(Part):
    r"""Tie the projections of the clients' own models to a vector :math:`w` that all share.

    .. math::
        \theta_k \leftarrow \theta_k - \eta\,(g_k - \lambda P^\top s(w - P\theta_k)), \qquad
        w_k = w - \eta_w \lambda\, n(w - P\theta_k), \qquad
        w \leftarrow (1 - \beta) w + \beta \sum_k p_k w_k

    where P has ``size`` Gaussian rows of length 1, :math:`s(c) = \mathrm{sign}(c)|c|^{p-1}` and
    :math:`n(c) = \mathrm{sign}(c)(|c| / \|c\|_p)^{p-1}`, and both are c for p = 2.

    Parameters
    ----------
    lam
        Strength of the tie. 0 trains each client alone.
    size
        Numbers of :math:`w`, d_sub.
    p
        Which norm of :math:`w - P\theta_k` is small.
    rate
        :math:`\eta_w`, the rate of :math:`w` on the client.
    beta
        How far the server goes towards the mean.
    seed
        Of P, which every client makes for itself.

    Notes
    -----
    Sent: ``size`` floats each way in place of the model (where messages carry parameters, they are
    the initial ones, and the update is zero). The server learns one short vector of each client.
    P takes ``size * d`` floats of memory. The weights :math:`p_k` are the experiment's, or those of
    parts before this one over their sum. The authors' code goes R = 5 times through N = 20 steps
    and moves :math:`w_k` after each; here R is 1: it moves once, after the round's local steps. Who
    has never taken part is evaluated with the initial parameters.

    Examples
    --------
    >>> LpProj(size=3).init_server(torch.zeros(5), None)
    {'w': tensor([0., 0., 0.])}

    References
    ----------
    Lin, Han, Li, Zhang. Personalized federated learning towards communication efficiency,
    robustness and fairness. NeurIPS 2022.
    """

    lam: float = Field(default=0.1, ge=0, description="strength of the tie")
    size: int = Field(default=60, ge=1, description="numbers of the shared vector")
    p: float = Field(default=1.0, ge=1, description="which norm")
    rate: float = Field(default=0.1, gt=0, description="rate of the shared vector on the client")
    beta: float = Field(default=1.0, gt=0, le=1, description="step of the server to the mean")
    seed: int = Field(default=0, ge=0, description="seed of the projection")

    name = "lp_proj"
    paper = "Lin et al. 2022 (lp-proj)"
    equalises = "accuracy, by a model for each client"
    learns = "a short projection of its model"
    reports = {"w": Vector()}
    buffers = "local"
    conflicts = {
        "own_model": "'lp_proj' and '{other}' would each give clients a model of their own: keep "
        "one",
        "own_layers": "'lp_proj' gives clients a whole model of their own, in which the layers of "
        "'{other}' would be lost: keep one",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"own_model"})

    def validate(self, ctx: Context) -> None:
        sent = {"clean", "combine", "step", "move"}
        if idle := [part.name for part in ctx.parts if part.hooks & sent]:
            raise InputError(
                f"'{idle[0]}' acts on updates of the shared parameters, and with 'lp_proj' there "
                "are none: keep one"
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"w": x.new_zeros(self.size)}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"own": x}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(shared={"w": s["w"]})

    def start(self, x: Tensor, c: Client) -> Tensor:
        return c.state["own"]

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        matrix = projection(self.size, len(x), self.seed, x.dtype, x.device)
        apart = c.down["w"] - matrix @ x
        return g - self.lam * (self._slope(apart) @ matrix)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        matrix = projection(self.size, len(delta), self.seed, delta.dtype, delta.device)
        apart = c.down["w"] - matrix @ c.end
        if self.p != 2:
            norm = apart.abs().pow(self.p).sum().pow(1 / self.p)
            apart = torch.where(norm > 0, apart / norm, 0.0)
        moved = c.down["w"] - self.rate * self.lam * self._slope(apart)
        return Finish(torch.zeros_like(delta), {"w": moved}, {"own": c.end})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        mean = w / w.sum() @ up["w"]
        return w, {"w": (1 - self.beta) * s["w"] + self.beta * mean}

    def personal(self, x: Tensor, c: Client) -> Tensor:
        return c.state["own"]

    def _slope(self, apart: Tensor) -> Tensor:
        """Return ``sign(c) |c|^(p - 1)``."""
        return apart.sign() if self.p == 1 else apart.sign() * apart.abs().pow(self.p - 1)


CPU = torch.device("cpu")


@lru_cache(maxsize=2)
def projection(
    size: int, d: int, seed: int, dtype: torch.dtype, device: torch.device = CPU
) -> Tensor:
    """Return P, ``[size, d]``: Gaussian rows of length 1 that depend on the seed alone."""
    rows = torch.from_numpy(generator(seed, "lp_proj").standard_normal((size, d)))
    found: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return found.to(dtype).to(device)
