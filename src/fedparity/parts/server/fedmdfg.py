"""FedMDFG: a common descent direction, turned towards fairness, and a line search along it."""

from __future__ import annotations

import math

import numpy as np
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
    LossesAt,
    Part,
    Tensors,
    stacked,
)
from fedparity.parts.weights.fedeba_plus import angle
from fedparity.toolbox.products import gram_matrix
from fedparity.toolbox.shortest import min_norm

FLAT = 1e-6
"""Length of a gradient below which a client has none."""
COMMON = 1e-8
"""Length of the direction, in lengths of the gradients, below which there is no common descent."""
ARMIJO = 1e-4
"""Share of the promised descent that has to be kept."""


@dataclass(frozen=True, config=STRICT)
class FedMDFG(Part):
    r"""Descend for every client at once, and towards equal losses where they are too unlike.

    Gradients :math:`g_k` at the received model are brought to their mean length. Where the angle
    between the losses F and the vector of ones exceeds ``theta``, or the loss of some clients but
    not of all rose above its expectation, the fair row :math:`\sum_k h_k g_k` joins them, with
    :math:`v = F/\|F\|`, :math:`u = 1/\sqrt m` and :math:`h \propto (u\cdot v)\, v - u`; so do the
    last gradients of clients that have left. Then

    .. math:: x \leftarrow x - \gamma\eta\, d\, \frac{\|\bar g\|}{\|d\|}, \qquad
              d = \arg\min \|z\|^2 \text{ over the hull of all rows,}

    with the largest :math:`\gamma` of the search for which every client's loss falls by
    :math:`10^{-4} \gamma\eta\, g_k\cdot d` at least and, with the fair row, losses come nearer to
    equal; failing that, the one of least summed loss.

    Parameters
    ----------
    theta
        Angle in degrees up to which losses are equal enough.
    s
        Reach of the line search: from :math:`2^s` (1 where a client has left) to :math:`2^{-s}`
        times the factor by which d was lengthened back.

    Notes
    -----
    Sent up: the gradient in place of an update, one float more, the loss, and ``2 s + 1`` losses of
    the line search. Sent down: d more, the direction, and its ``2 s + 1`` factors. The server
    learns each client's gradient and its loss at many points. Clients take no local steps, so that
    parts which act in them are refused; weights of others have no say. The paper's search halves
    the step, one exchange a time; here all points are asked for in one exchange, evenly spaced on a
    logarithmic scale between the same ends. The public code accepts a step that raises losses (the
    sign of its condition is turned); this is Armijo's. Slopes are those of the gradients brought to
    one length, as in the code. Where no common descent is left the model stays.

    Examples
    --------
    >>> [round(f, 4) for f in FedMDFG(s=1).factors(True, 1.0)]
    [2.0, 1.0, 0.5]

    References
    ----------
    Pan, Wang, Li, Wu. FedMDFG: federated learning with multi-gradient descent and fair guidance.
    AAAI 2023.
    """

    theta: float = Field(default=11.25, gt=0, lt=90, description="tolerated angle, degrees")
    s: int = Field(default=5, ge=0, description="reach of the line search, in doublings")

    name = "fedmdfg"
    paper = "Pan et al. 2023 (FedMDFG)"
    equalises = "loss (common descent, with fair guidance)"
    learns = "its full gradient, its training loss, also at the points of the line search"
    trains = False
    ignores_weights = True
    needs = frozenset({"plain_sgd"})
    reports = {"loss": Loss()}
    conflicts = {
        "local_steps": "'fedmdfg' takes no local steps, in which '{other}' does its work: keep one",
    }
    ahead = {
        "finish": "'fedmdfg' makes the update that '{other}' looks at: write 'fedmdfg' first",
    }

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss", "grad"})

    @property
    def softens(self) -> str:
        return "raise theta"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {
            "rows": x.new_zeros(ctx.cohort, len(x)),
            "who": torch.full((ctx.cohort,), -1),
            "before": torch.zeros(ctx.cohort, dtype=torch.float64),
            "expected": torch.zeros(ctx.population, dtype=torch.float64),
            "met": torch.zeros(ctx.population, dtype=torch.int64),
            "guided": torch.tensor(0),
            "left": torch.tensor(0),
            "lengthened": torch.tensor(0.0, dtype=torch.float64),
            "factor": torch.tensor(1.0, dtype=torch.float64),
            "lr": torch.tensor(ctx.lr, dtype=torch.float64),
        }

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(-c.lr * c.grad, {"loss": c.loss})

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        # Everything is odd in the gradients, so that updates -lr g serve in their place.
        losses, clients = up["loss"].double(), ctx.clients
        expectations, forced = self._expected(losses, s, ctx)
        s = {**s, **expectations, "lengthened": torch.zeros_like(s["lengthened"])}
        if len(ctx.times):  # who was drawn twice stands there twice
            deltas, losses, clients = (v[ctx.listed] for v in (deltas, losses, clients))
        lengths = deltas.double().norm(dim=1)
        live = lengths > FLAT * ctx.lr
        if not live.any():
            return torch.zeros_like(deltas[0]), s
        who, losses, length = clients[live], losses[live], lengths[live].mean()
        rows = deltas[live] * (length / lengths[live])[:, None].to(deltas.dtype)

        vectors = [rows]
        guided = (forced or angle(losses) > self.theta) and bool((losses != losses[0]).any())
        if guided:
            vectors.append((_towards_equal(losses).to(rows.dtype) @ rows)[None])
        gone = (s["who"] >= 0) & ~torch.isin(s["who"], ctx.clients)
        vectors.append(s["rows"][gone] * (ctx.lr / float(s["lr"])))
        hull = torch.cat(vectors)
        gram = gram_matrix(hull.numpy()) / float(length) ** 2
        mixture = min_norm(gram, np.full(len(hull), 1 / len(hull)))
        d = torch.from_numpy(mixture).to(hull.dtype) @ hull
        common = float(d.double().norm())
        lengthened = 0.0
        if common > COMMON * float(length):
            lengthened = float(rows.mean(0).double().norm()) / common
        missing = len(s["who"]) - len(who)
        state = {
            "rows": torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]),
            "who": torch.cat([who, torch.full((missing,), -1)]),
            "before": torch.cat([losses, losses.new_zeros(missing)]),
            "guided": torch.tensor(int(guided)),
            "left": torch.tensor(int(gone.any())),
            "lengthened": torch.tensor(lengthened, dtype=torch.float64),
            "lr": torch.tensor(ctx.lr, dtype=torch.float64),
        }
        return d * lengthened, {**s, **state}

    def move(
        self, direction: Tensor, losses_at: LossesAt, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        if float(s["lengthened"]) == 0:
            return direction, s
        factors = self.factors(not int(s["left"]), float(s["lengthened"]))
        asked = losses_at(factors)
        heard = torch.isin(s["who"], asked.clients)
        if not heard.any():
            return direction, s
        rows = torch.searchsorted(asked.clients, s["who"][heard])
        before, after = s["before"][heard][:, None], asked.values[rows].double()
        promised = (s["rows"][heard] @ direction).double()[:, None] / ctx.lr
        gamma = torch.tensor(factors, dtype=torch.float64)
        accepted = (before - after >= ARMIJO * gamma * promised).all(0)
        if int(s["guided"]):
            accepted &= _evenness(after) > _evenness(before)
        # Factors descend, so the first accepted one is the largest.
        chosen = int(accepted.int().argmax() if accepted.any() else after.sum(0).argmin())
        return direction * factors[chosen], {**s, "factor": gamma[chosen]}

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"step_factor": float(s["factor"]), "guided": float(s["guided"])}

    def factors(self, same: bool, lengthened: float) -> list[float]:
        """Return the factors of the line search, in descending order."""
        top, bottom = (float(self.s) if same else 0.0), -self.s - math.log2(lengthened)
        return [float(2.0**e) for e in np.linspace(top, bottom, 2 * self.s + 1)]

    def _expected(self, losses: Tensor, s: Tensors, ctx: Context) -> tuple[Tensors, bool]:
        """Return the running means of falling losses, and whether some but not all losses rose."""
        met = s["met"][ctx.clients]
        old = torch.where(met > 0, s["expected"][ctx.clients], losses)
        rose = losses > old
        new = torch.where(rose, old, (old * met + losses) / (met + 1))
        kept = {
            "expected": s["expected"].index_copy(0, ctx.clients, new),
            "met": s["met"].index_copy(0, ctx.clients, met + 1),
        }
        return kept, bool(rose.any()) and not bool(rose.all())


def _towards_equal(losses: Tensor) -> Tensor:
    """Return the weights of the gradients whose mixture descends towards equal losses."""
    v = losses / losses.norm()
    u = torch.full_like(v, 1 / math.sqrt(len(v)))
    h = (u @ v) * v - u
    found: Tensor = h / h.norm()
    return found


def _evenness(losses: Tensor) -> Tensor:
    """Return the cosine between the losses of clients ``[m, T]`` and the vector of ones."""
    found: Tensor = losses.sum(0) / (math.sqrt(len(losses)) * losses.norm(dim=0))
    return found
