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
    :math:`n(c) = \mathrm{sign}(c)(|c| / \|c\|_p)^{p-1}`, and both are c for p = 2. With ``every``,
    :math:`w_k` moves more than once a round, from where it was, and w is it in the first step.

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
    every
        :math:`w_k` moves after so many local steps, and at their end. None: at their end alone.
    seed
        Of P, which every client makes for itself.

    Notes
    -----
    Sent: ``size`` floats each way in place of the model (where messages carry parameters, they are
    the initial ones, and the update is zero). The server learns one short vector of each client.
    P takes ``size * d`` floats of memory. The weights :math:`p_k` are the experiment's, or those of
    parts before this one over their sum. The authors' code goes R = 5 times through N = 20 steps
    and moves :math:`w_k` after each: ``every=20`` with 100 local steps. Who has never taken part is
    evaluated with the initial parameters.

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
    every: int | None = Field(default=None, ge=1, description="steps between moves of it")
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

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.every else super().hooks - {"carry"}

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

    def carry(self, y: Tensor, c: Client) -> Tensors:
        w = self._tie(c)
        assert self.every is not None
        return {"w": self._moved(w, y) if c.step and c.step % self.every == 0 else w}

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        matrix = self._projection(x)
        return g - self.lam * (self._slope(self._tie(c) - matrix @ x) @ matrix)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        moved = self._moved(self._tie(c), c.end)
        return Finish(torch.zeros_like(delta), {"w": moved}, {"own": c.end})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        mean = w / w.sum() @ up["w"]
        return w, {"w": (1 - self.beta) * s["w"] + self.beta * mean}

    def personal(self, x: Tensor, c: Client) -> Tensor:
        return c.state["own"]

    @staticmethod
    def _tie(c: Client) -> Tensor:
        """Return the client's own short vector, which is the received one until it moves."""
        return c.carried.get("w", c.down["w"])

    def _moved(self, w: Tensor, y: Tensor) -> Tensor:
        """Return the short vector after a move towards the projection of the parameters."""
        apart = w - self._projection(y) @ y
        if self.p != 2:
            norm = apart.abs().pow(self.p).sum().pow(1 / self.p)
            apart = torch.where(norm > 0, apart / norm, 0.0)
        return w - self.rate * self.lam * self._slope(apart)

    def _projection(self, y: Tensor) -> Tensor:
        return projection(self.size, len(y), self.seed, y.dtype, y.device)

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
