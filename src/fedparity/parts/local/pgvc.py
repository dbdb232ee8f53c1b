"""FedPGVC: the size of the last layers' gradients is kept even."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Context, Finish, Norm, Part, Plan, Tensors, stacked

Mode = Literal["norm", "scalar", "literal", "abs", "second_moment", "penalty"]
Rho = Literal["current", "previous"]
RESCALING = ("norm", "scalar", "abs")
"""Modes that only stretch the gradient, which Adam undoes."""
Pieces = tuple[Tensor, ...]
MEMORY = 0.5
"""Share of the old ``sigma`` in the new one."""


@dataclass(frozen=True, config=STRICT)
class PGVC(Part):
    r"""Scale the gradients of the last layers, for their variance among clients.

    On the last layers, with :math:`g = \frac1B\sum_b \nabla l_b` the batch's gradient there and
    :math:`\rho = \frac1B\sum_b l_b \nabla l_b`, it becomes

    ===================  ===============================================================
    ``norm``             :math:`\min(1, c\,\sigma/\|g\|)\, g` (Eq. 8 to 10, never larger)
    ``scalar``           :math:`\min(\|\rho\|/\|g\|, s_{max})\, g`
    ``literal``          :math:`\rho \odot g` (Eq. 15; no descent direction)
    ``abs``              :math:`|\rho| \odot g`
    ``second_moment``    :math:`\rho`
    ``penalty``          :math:`g + \kappa \rho`
    ===================  ===============================================================

    In ``norm``, :math:`\sigma` is what the clients' first batches of a round have for a norm there,
    on average over the clients and over rounds: :math:`\sigma \leftarrow (\sigma + \bar n)/2`. It
    is measured before the first step of all as well.

    Parameters
    ----------
    layers
        How many of the last layers, or places (``[0, -1]``) or names of any; 0 is FedAvg.
    mode
        See above.
    level
        :math:`c` of ``norm``; a large one is FedAvg.
    s_max
        Largest factor of ``scalar``.
    kappa
        Weight of :math:`\rho` in ``penalty``.
    rho
        ``current`` takes :math:`\rho` of the same batch; ``previous`` the last one of the client's
        round before, kept on the client; until there is one it takes plain steps.
    literal_server
        The paper's server step with this :math:`\eta_g`: :math:`(1-\eta_g) x + \frac1K\sum_k y_k`,
        which is an average only for 1. None takes the plain step.

    Notes
    -----
    Sent by ``norm``: one float up, the norm of the first batch's gradient, and one down,
    :math:`\sigma`; the first round has a probe before it. The other modes send nothing more than
    FedAvg, and take a second backward pass through these layers.

    The paper's equations do not agree: Eq. 8 to 10 divide by the gradient's norm, Eq. 14 and 15
    multiply by loss and gradient. ``norm`` is the first, and is gradient clipping of some layers at
    a level that is measured. Eq. 15 with equal losses is :math:`-\eta l\, g \odot g`: parameters
    can only decrease, whatever the sign of the gradient. ``scalar`` takes larger steps where losses
    are large, and diverges where FedAvg does not: it warns. With Adam, which divides by the
    gradient's size, ``norm``, ``scalar`` and ``abs`` are refused.

    Parts that change gradients stand behind it, except ``prox``: in ``prox+pgvc`` the proximal
    gradient is scaled, in ``pgvc+prox`` the batch's alone.

    Examples
    --------
    >>> PGVC().mode
    'norm'

    References
    ----------
    Sahoo et al. Harnessing heterogeneity: improving convergence through partial variance control
    in federated learning. TMLR 2026.
    """

    layers: Annotated[int, Field(ge=0)] | tuple[int, ...] | tuple[str, ...] = Field(
        default=2, description="last layers by count, or any by place or name"
    )
    mode: Mode = "norm"
    level: float = Field(default=0.5, gt=0, description="largest norm of mode norm, in sigmas")
    s_max: float = Field(default=10.0, gt=0, description="largest factor of mode scalar")
    kappa: float = Field(default=0.1, ge=0, description="weight of the second gradient in penalty")
    rho: Rho = "current"
    literal_server: float | None = Field(default=None, gt=0, le=1, description="eta_g of Eq. 16")

    name = "pgvc"
    paper = "Sahoo et al. 2026 (FedPGVC)"
    ahead = {
        "corrects_gradients": "'pgvc' scales the gradient of the batch, which '{other}' would have "
        "changed before: write 'pgvc' first"
    }
    reports = {"norm": Norm()}

    @property
    def hooks(self) -> frozenset[str]:
        if self.mode == "norm":
            return super().hooks - {"second", "init_client"}
        unused = {"init_server", "probe", "plan", "tell"}
        unused |= {"init_client", "finish"} if self.rho == "current" else set()
        return super().hooks - unused - ({"step"} if self.literal_server is None else set())

    @property
    def reads(self) -> frozenset[str]:
        if self.mode == "norm":
            return frozenset({"first_grad"})
        return frozenset({"last_second"} if self.rho == "previous" else ())

    @property
    def learns(self) -> str:  # type: ignore[override]
        also = " and the norm of its first gradient there" if self.mode == "norm" else ""
        return f"its update{also}"

    def neutral(self) -> Part:
        return PGVC(layers=0)

    def validate(self, ctx: Context) -> None:
        ctx.layout.mask(self.layers)
        if self.mode == "norm" and self.rho == "previous":
            raise InputError("'pgvc' uses no rho in mode norm: leave rho out")
        if self.mode in RESCALING and ctx.solver.optimizer == "adam":
            raise InputError(
                f"'pgvc' only rescales gradients in mode {self.mode}, which Adam undoes: use SGD "
                "or mode=penalty"
            )
        planned = [
            p.name for p in ctx.parts if "loss" in p.hooks and (p.reads or "plan" in p.hooks)
        ]
        if self.mode == "norm" and planned:
            raise InputError(
                f"'pgvc' measures gradients before '{planned[0]}' has what its losses need: use "
                "another mode"
            )
        if self.mode == "scalar":
            warnings.warn(
                "pgvc(mode=scalar) takes larger steps where losses are large and diverges where "
                "FedAvg does not: mode=norm is the stable reading of the paper",
                stacklevel=2,
            )

    def second_from(self, layout: Layout) -> int:
        return layout.first(self.layers)

    def second(self, losses: Tensor, c: Client) -> Tensor:
        return losses.detach() * losses

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        unknown = torch.tensor(torch.nan, dtype=torch.float64)
        return {"sigma": unknown} if self.mode == "norm" else {}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"rho": torch.zeros_like(x[layout.first(self.layers) :]), "known": x.new_zeros(())}

    def asks(self, s: Tensors) -> bool:
        return bool(s["sigma"].isnan())

    def probe(self, c: Client) -> Tensors:
        return {"norm": self._norm(c)}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        sigma = probe["norm"].double().mean() if self.asks(s) else s["sigma"]
        return Plan(shared={"sigma": sigma.to(ctx.x.dtype)}, state={"sigma": sigma})

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        start = c.layout.first(self.layers)
        marked = c.layout.mask(self.layers)[start:]
        changed = self._changed(torch.where(marked, g[start:], 0), c)
        return torch.cat([g[:start], torch.where(marked, changed, g[start:])])

    def by_slot(self, c: Client) -> Callable[[Pieces], Pieces] | None:
        if self.mode != "norm":
            return None
        places, slots = c.layout.places(self.layers), c.layout.slots

        def change(gradient: Pieces) -> Pieces:
            if not places:
                return gradient
            each = [gradient[place].reshape(len(gradient[place]), -1) for place in places]
            norm = torch.stack([_norm(piece) for piece in each]).square().sum(0).sqrt()
            factor = _factor(1, self.level * c.down["sigma"], norm)
            changed = list(gradient)
            for place in places:
                changed[place] = gradient[place] * factor.view(-1, *[1] * len(slots[place].shape))
            return tuple(changed)

        return change

    def _changed(self, g: Tensor, c: Client) -> Tensor:
        """Return the gradient of the last layers; zeros stand where a layer is left out."""
        if self.mode == "norm":
            return _at_most(1, self.level * c.down["sigma"], g)
        if self.rho == "current":
            return self._weighed(g, c.second[c.layout.first(self.layers) :])
        return torch.where(c.state["known"] > 0, self._weighed(g, c.state["rho"]), g)

    def _weighed(self, g: Tensor, rho: Tensor) -> Tensor:
        if self.mode == "scalar":
            return _at_most(self.s_max, _norm(rho), g)
        if self.mode == "literal":
            return rho * g
        if self.mode == "abs":
            return rho.abs() * g
        return rho if self.mode == "second_moment" else g + self.kappa * rho

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        if self.mode == "norm":
            return Finish(delta, {"norm": self._norm(c)})
        last = c.last_second[..., c.layout.first(self.layers) :]
        return Finish(delta, state={"rho": last, "known": torch.ones_like(c.state["known"])})

    def _norm(self, c: Client) -> Tensor:
        """Return the norm of the first batch's gradient in the layers."""
        start = c.layout.first(self.layers)
        marked = c.layout.mask(self.layers)[start:]
        return _norm(torch.where(marked, c.first_grad[..., start:], 0))

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        if self.literal_server is not None:
            direction = direction + (1 - self.literal_server) * ctx.x
        if self.mode == "norm":
            found = MEMORY * s["sigma"] + (1 - MEMORY) * up["norm"].double().mean()
            s = {"sigma": torch.where(found.isfinite(), found, s["sigma"])}
        return direction, s

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"sigma": float(s["sigma"])}


def _norm(g: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(g, dim=-1)
    return found


def _at_most(factor: float, norm: Tensor, g: Tensor) -> Tensor:
    """Return the gradient brought to a norm, but stretched by no more than a factor."""
    return _factor(factor, norm, _norm(g)) * g


def _factor(most: float, wanted: Tensor, norm: Tensor) -> Tensor:
    """Return what brings a norm to the wanted one, but stretches by no more than ``most``."""
    return (wanted / (norm + 1e-12)).clamp_max(most)
