"""EAGLE: equal loss gaps. Clients are re-weighted by how much they lose by joining."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import (
    STRICT,
    Affine,
    Client,
    Context,
    Finish,
    Gap,
    Part,
    Plan,
    Tensors,
    stacked,
)

Numbers = npt.NDArray[np.float64]


FEW = 30
"""Validation examples below which a client's gap is mostly noise."""


@dataclass(frozen=True, config=STRICT)
class Eagle(Part):
    r"""Equalise the loss gaps :math:`r_k = L_k(x) - L^*_k`.

    The objective is :math:`\frac1K\sum_k L_k + \frac{\lambda}{K(K-1)}\sum_{k\ne j}(r_k-r_j)^2`, the
    mean loss plus :math:`2\lambda` times the sample variance of the gaps. Its gradient weighs
    client k by

    .. math:: v_k = 1 + \frac{4\lambda_t K}{K-1}(r_k - \bar r), \qquad
              \lambda_t = \min\Bigl(\lambda, \frac{(1 - v_{min})(K-1)}{4K(\bar r - r_{min})}\Bigr)

    and the server takes the uniform mean of the weighted updates,
    :math:`x \leftarrow x + \frac1m\sum_k \hat v_k D_k`, with :math:`\hat v` normalised over the m
    clients that take part.

    Parameters
    ----------
    lam
        Utility against parity; 0 is uniform FedAvg.
    v_min
        Trust region on ``lam``: in each round it is lowered until no weight, before normalisation,
        is below ``v_min``. The mean weight stays 1, so every round is a step of EAGLE of a smaller
        ``lam``. Where no weight is below, nothing changes. None is the paper's, in which clients of
        small gaps may get negative weights and climb.
    apply
        ``displacement`` weighs the update of a client, whatever rule made it; with one step of SGD
        this is the paper's Algorithm 1. ``gradient`` weighs every local gradient, as printed; Adam
        and clipping would undo that, so they are refused.
    normalise
        ``l2_sqrtK`` makes the norm of the weights the root of their number, so that equal gaps are
        FedAvg at the same learning rate; ``l2_unit`` is the paper's (norm 1, the learning rate
        shrinks by that root); ``none`` is the gradient of the objective.
    weights
        ``stale`` uses the gaps of the previous round (Algorithm 1), ``fresh`` those at the current
        model (the theory). With ``apply="gradient"`` fresh ones cost an exchange of a float more.
    max_ratio
        Largest weight allowed, as a multiple of the mean weight 1. None allows any.
    target_variance
        Instead of ``lam``: the sample variance of the gaps to reach (epsilon loss-gap parity).
        ``lam`` then starts at 0 and moves by dual ascent, :math:`\lambda \leftarrow \max(0,
        \lambda + \frac{s}{4\sqrt\epsilon} \min(1, \mathrm{Var}(r)/\epsilon - 1))`.
    dual_step
        :math:`s` of the dual ascent, free of the losses' scale: at :math:`\lambda =
        1/(4\sqrt\epsilon)` a gap of :math:`\sqrt\epsilon` above the mean about doubles a weight.
        Smaller where training is slow. A ``lam`` that climbs on and on, or that the trust region
        holds down in every round, says that the target cannot be met.

    Notes
    -----
    Sent up: one float, the gap; down: nothing (``displacement``) or one float, the weight
    (``gradient``). The server learns each client's gap on its validation split, never the loss or
    :math:`L^*` by themselves. With partial participation (the paper asks all clients) the last
    known gaps of absent clients count, and K is the number of clients whose gap is known; until
    then a client's weight is that of equal gaps.

    Negative weights inside several local steps diverge: the gradient of a client that climbs grows,
    those of the others shrink. Hence the trust region.

    Examples
    --------
    >>> Eagle(lam=0.5).raw_weights(np.array([0.1, 0.3, -0.2])).round(4)
    array([1.1, 1.7, 0.2])

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning.
    arXiv:2603.29818, 2026.
    """

    lam: float = Field(default=1.0, ge=0, description="utility against parity")
    v_min: float | None = Field(default=0.0, le=1, description="smallest weight; lowers lam")
    apply: Literal["displacement", "gradient"] = "displacement"
    normalise: Literal["l2_sqrtK", "l2_unit", "none"] = "l2_sqrtK"
    weights: Literal["stale", "fresh"] = "stale"
    max_ratio: float | None = Field(default=None, ge=1, description="largest weight allowed")
    target_variance: float | None = Field(default=None, gt=0, description="gap variance to reach")
    dual_step: float = Field(default=0.02, gt=0, description="step of the dual ascent on lam")

    name = "eagle"
    paper = "Erraji et al. 2026 (EAGLE)"
    equalises = "loss gap (loss-gap parity)"
    learns = "its update and its validation loss gap"
    replaces = frozenset({"weigh"})
    reports = {"gap": Gap()}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"validation_loss", "lstar"})

    @property
    def hooks(self) -> frozenset[str]:
        if self.apply == "displacement":
            return super().hooks - {"probe", "plan", "grad"}
        return super().hooks - {"probe" if self.weights == "stale" else "finish"}

    @property
    def traits(self) -> frozenset[str]:
        if self.apply == "gradient":
            return frozenset({"weighs_gradients"})
        signed = {"signed_weights"} if self.v_min is None or self.v_min < 0 else set()
        return frozenset({"weighs_updates", "no_distribution", *signed})

    @property
    def softens(self) -> str:
        return "lower lam" if self.target_variance is None else "raise target_variance"

    def neutral(self) -> Part:
        return Eagle(lam=0.0)

    def validate(self, ctx: Context) -> None:
        undone = "Adam" if ctx.solver.optimizer == "adam" else "clipping"
        if self.apply == "gradient" and (undone == "Adam" or ctx.solver.clip is not None):
            raise InputError(
                f"'eagle': {undone} undoes a weight on the gradient: use apply='displacement'"
            )
        few = int((ctx.validation < FEW).sum())
        if few:
            warnings.warn(
                f"eagle: {few} of {len(ctx.validation)} clients have fewer than {FEW} validation "
                "examples, so the gaps it steers by are mostly noise there: give validation more",
                stacklevel=1,
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        start = self.lam if self.target_variance is None else 0.0
        return {
            "gaps": torch.full((ctx.population,), torch.nan, dtype=torch.float64),
            "lam": torch.tensor(start, dtype=torch.float64),
            "used": torch.tensor(start, dtype=torch.float64),
            "gamma": torch.zeros((), dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
            "capped": torch.zeros((), dtype=torch.int64),
            "negative": torch.zeros((), dtype=torch.float64),
        }

    def probe(self, c: Client) -> Tensors:
        return {"gap": c.validation_loss - c.lstar}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        if self.weights == "fresh":
            s = _known(s, ctx.clients, probe["gap"])
        weights, s = self._weights(s, ctx)
        return Plan(each={"weight": weights}, state=s)

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return c.down["weight"] * g

    def affine(self, c: Client) -> Affine:
        return Affine(scale=c.down["weight"])

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"gap": c.validation_loss - c.lstar})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        if self.apply == "gradient":
            return ctx.uniform, _known(s, ctx.clients, up["gap"]) if "gap" in up else s
        if self.weights == "fresh":
            weights, s = self._weights(_known(s, ctx.clients, up["gap"]), ctx)
        else:
            weights, s = self._weights(s, ctx)
            s = _known(s, ctx.clients, up["gap"])
        return ctx.uniform * weights, s

    def tell(self, s: Tensors) -> dict[str, float]:
        gaps = s["gaps"].numpy()
        rounds, gamma = max(1, int(s["rounds"])), float(s["gamma"])
        return {
            "lam": float(s["lam"]),
            "lam_used": float(s["used"]),
            "capped_share": int(s["capped"]) / rounds,
            "negative_share": float(s["negative"]) / rounds,
            "gap_variance": _variance(gaps[~np.isnan(gaps)]),
            "gamma": gamma,
            "step_bound": 1 / (1 + 4 * float(s["used"]) * gamma),
        }

    def raw_weights(self, gaps: Numbers, lam: float | None = None) -> Numbers:
        """Return ``v`` before bounds and normalisation; its mean is 1."""
        if len(gaps) < 2:
            return np.ones(len(gaps))
        lam = self.lam if lam is None else lam
        v: Numbers = 1 + 4 * lam * len(gaps) / (len(gaps) - 1) * (gaps - gaps.mean())
        return v

    def trusted(self, lam: float, gaps: Numbers) -> float:
        """Return the largest lambda up to ``lam`` at which no weight is below ``v_min``."""
        if self.v_min is None or len(gaps) < 2:
            return lam
        below = float(gaps.mean() - gaps.min())
        K = len(gaps)
        return min(lam, (1 - self.v_min) * (K - 1) / (4 * K * below)) if below > 0 else lam

    def _weights(self, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        """Return the weights of those who take part, and the state with what is told of them."""
        gaps = s["gaps"].numpy()
        known = ~np.isnan(gaps)
        seen = gaps[known]
        lam = self._ascended(s["lam"], seen)
        used = self.trusted(float(lam), seen)
        capped = used < float(lam)
        v = np.ones(len(gaps))
        v[known] = self._bounded(self.raw_weights(seen, used), capped)
        mine = v[ctx.clients.numpy()]
        state = {
            **s,
            # An ascent that goes on above the cap would take as long to come down again.
            "lam": lam if self.target_variance is None else lam.clamp_max(used),
            "used": torch.tensor(used, dtype=torch.float64),
            "rounds": s["rounds"] + 1,
            "capped": s["capped"] + int(capped),
            "negative": s["negative"] + float((mine < 0).mean()),
        }
        return torch.from_numpy(self._normalised(mine, ctx.drawn.numpy())).to(ctx.x.dtype), state

    def _ascended(self, lam: Tensor, gaps: Numbers) -> Tensor:
        """Return lambda after one dual step, or as it is where it was given."""
        if self.target_variance is None or len(gaps) < 2:
            return lam
        excess = min(1.0, _variance(gaps) / self.target_variance - 1)
        unit = 1 / (4 * math.sqrt(self.target_variance))
        return (lam + self.dual_step * unit * excess).clamp_min(0)

    def _bounded(self, v: Numbers, capped: bool) -> Numbers:
        if len(v) and v.min() < 0 and (self.v_min is None or self.v_min < 0):
            warnings.warn(
                "eagle: clients of small gaps have a negative weight and climb; lower lam or set "
                "v_min=0",
                stacklevel=2,
            )
        # capped, the least weight is v_min but for rounding
        low = self.v_min if capped and self.v_min is not None else -np.inf
        return v.clip(low, np.inf if self.max_ratio is None else self.max_ratio)

    def _normalised(self, v: Numbers, drawn: npt.NDArray[np.int64]) -> Numbers:
        if self.normalise == "none":
            return v
        v = v if v.any() else np.ones(len(v))  # a cohort of those who need it least still trains
        norm = math.sqrt((drawn * v) @ v)
        target = 1.0 if self.normalise == "l2_unit" else math.sqrt(drawn.sum())
        return v * (target / norm)


def _variance(gaps: Numbers) -> float:
    """Return the sample variance; 0 for fewer than two gaps."""
    return float(gaps.var(ddof=1)) if len(gaps) > 1 else 0.0


def _known(s: Tensors, clients: Tensor, new: Tensor) -> Tensors:
    """Return the state with new gaps of these clients, and the largest spread so far."""
    gaps = s["gaps"].numpy().copy()
    gaps[clients.numpy()] = new.numpy()
    spread = float(np.nanmax(gaps) - np.nanmin(gaps))
    return {**s, "gaps": torch.from_numpy(gaps), "gamma": s["gamma"].clamp_min(spread)}
