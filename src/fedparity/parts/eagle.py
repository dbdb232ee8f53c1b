"""EAGLE: equal loss gaps. Local gradients are re-weighted by how much a client loses by joining."""

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

from fedparity.core.part import STRICT, Client, Context, Fact, Finish, Part, Plan, Tensors, stacked

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, config=STRICT)
class Eagle(Part):
    r"""Equalise the loss gaps :math:`r_k = L_k(x) - L^*_k`.

    The objective is :math:`\frac1K\sum_k L_k + \frac{\lambda}{K(K-1)}\sum_{k\ne j}(r_k-r_j)^2`, the
    mean loss plus :math:`2\lambda` times the sample variance of the gaps. Client k descends with

    .. math:: y \leftarrow y - \eta_l \hat v_k\, g_k(y), \qquad
              v_k = 1 + \frac{4\lambda K}{K-1}(r_k - \bar r)

    and the server takes the uniform mean.

    Parameters
    ----------
    lam
        Utility against parity; 0 is uniform FedAvg.
    normalise
        ``l2_sqrtK`` makes the norm of the weights sqrt(K), so that equal gaps are FedAvg at the
        same learning rate; ``l2_unit`` is the paper's (norm 1, the learning rate shrinks by
        sqrt(K)); ``none`` is the gradient of the objective.
    weights
        ``stale`` uses the gaps of the previous round (Algorithm 1; no extra exchange), ``fresh``
        asks for the gaps at the current model first (the theory; one more exchange of a float).
    clip_min
        Smallest weight allowed; weights are normalised after it. None keeps negative weights, with
        which the clients of the smallest gaps climb.
    max_ratio
        Largest weight allowed, as a multiple of the mean weight 1. None allows any.
    target_variance
        Instead of ``lam``: the sample variance of the gaps to reach (epsilon loss-gap parity).
        ``lam`` then starts at 0 and moves by dual ascent, :math:`\lambda \leftarrow \max(0,
        \lambda + \frac{s}{4\sqrt\epsilon} \min(1, \mathrm{Var}(r)/\epsilon - 1))`.
    dual_step
        :math:`s` of the dual ascent, free of the losses' scale: at :math:`\lambda =
        1/(4\sqrt\epsilon)` a gap of :math:`\sqrt\epsilon` above the mean about doubles a weight.
        Smaller where training is slow; a ``lam`` that climbs on and on says that the target cannot
        be met.

    Notes
    -----
    Sent down: one float, the weight; sent up: one float, the gap. The server learns each client's
    gap on its validation split, never the loss or :math:`L^*` by themselves. With partial
    participation (the paper asks all clients) the last known gaps of absent clients count, and K
    is the number of clients whose gap is known; until then a client's weight is that of equal
    gaps.

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
    normalise: Literal["l2_sqrtK", "l2_unit", "none"] = "l2_sqrtK"
    weights: Literal["stale", "fresh"] = "stale"
    clip_min: float | None = Field(default=None, description="smallest weight allowed")
    max_ratio: float | None = Field(default=None, ge=1, description="largest weight allowed")
    target_variance: float | None = Field(default=None, gt=0, description="gap variance to reach")
    dual_step: float = Field(default=0.02, gt=0, description="step of the dual ascent on lam")

    name = "eagle"
    paper = "Erraji et al. 2026 (EAGLE)"
    equalises = "loss gap (loss-gap parity)"
    learns = "its update and its validation loss gap"
    replaces = frozenset({"weigh"})

    @property
    def reads(self) -> frozenset[Fact]:
        return frozenset({"validation_loss", "lstar"})

    @property
    def hooks(self) -> frozenset[str]:
        unused = "measure" if self.weights == "stale" else "finish"
        return super().hooks - {unused}

    @property
    def softens(self) -> str:
        return "lower lam" if self.target_variance is None else "raise target_variance"

    def neutral(self) -> Part:
        return Eagle(lam=0.0)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        start = self.lam if self.target_variance is None else 0.0
        return {
            "gaps": torch.full((ctx.population,), torch.nan, dtype=torch.float64),
            "lam": torch.tensor(start, dtype=torch.float64),
        }

    def measure(self, c: Client) -> Tensors:
        return {"gap": c.validation_loss - c.lstar}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        gaps = s["gaps"]
        if self.weights == "fresh":
            gaps = _with(gaps, ctx.clients, probe["gap"])
        known = ~np.isnan(gaps.numpy())
        seen = gaps.numpy()[known]
        lam = self._ascended(s["lam"], seen)
        weights = self._normalised(np.ones(len(gaps)))
        if len(seen):
            bounded = self._bounded(self.raw_weights(seen, float(lam)))
            weights[known] = self._normalised(bounded)
        mine = torch.from_numpy(weights[ctx.clients.numpy()]).to(ctx.x.dtype)
        return Plan(each={"weight": mine}, state={"gaps": gaps, "lam": lam})

    @stacked
    def factor(self, c: Client) -> Tensor:
        return c.down["weight"]

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return self.factor(c) * g

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"gap": c.validation_loss - c.lstar})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        if self.weights == "stale":
            s = {**s, "gaps": _with(s["gaps"], ctx.clients, up["gap"])}
        return ctx.uniform, s

    def tell(self, s: Tensors) -> dict[str, float]:
        gaps = s["gaps"].numpy()
        return {"lam": float(s["lam"]), "gap_variance": _variance(gaps[~np.isnan(gaps)])}

    def raw_weights(self, gaps: Numbers, lam: float | None = None) -> Numbers:
        """Return ``v`` before bounds and normalisation; its mean is 1."""
        if len(gaps) < 2:
            return np.ones(len(gaps))
        lam = self.lam if lam is None else lam
        v: Numbers = 1 + 4 * lam * len(gaps) / (len(gaps) - 1) * (gaps - gaps.mean())
        return v

    def _ascended(self, lam: Tensor, gaps: Numbers) -> Tensor:
        """Return lambda after one dual step, or as it is where it was given."""
        if self.target_variance is None or len(gaps) < 2:
            return lam
        excess = min(1.0, _variance(gaps) / self.target_variance - 1)
        unit = 1 / (4 * math.sqrt(self.target_variance))
        return (lam + self.dual_step * unit * excess).clamp_min(0)

    def _bounded(self, v: Numbers) -> Numbers:
        if self.clip_min is None and v.min() < 0:
            warnings.warn(
                "eagle: clients of small gaps have a negative weight and climb; "
                "lower lam or set clip_min=0",
                stacklevel=2,
            )
        low = -np.inf if self.clip_min is None else self.clip_min
        high = np.inf if self.max_ratio is None else self.max_ratio
        return v.clip(low, high)

    def _normalised(self, v: Numbers) -> Numbers:
        norm = math.sqrt(v @ v)
        if self.normalise == "none" or norm == 0:
            return v
        target = 1.0 if self.normalise == "l2_unit" else math.sqrt(len(v))
        return v * (target / norm)


def _variance(gaps: Numbers) -> float:
    """Return the sample variance; 0 for fewer than two gaps."""
    return float(gaps.var(ddof=1)) if len(gaps) > 1 else 0.0


def _with(gaps: Tensor, clients: Tensor, new: Tensor) -> Tensor:
    """Return the gaps with those of these clients replaced."""
    found = gaps.numpy().copy()
    found[clients.numpy()] = new.numpy()
    return torch.from_numpy(found)
