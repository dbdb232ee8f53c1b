"""Who gains from joining, and at whose cost: statistics of loss gaps.

The loss gap of client k is ``r_k = L_k(w) - L*_k``: its loss under the model it is given minus the
best loss it reaches alone, both on the same split. Negative means the client gains. With a
personalised method w is the client's own model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedparity.errors import InputError
from fedparity.metrics import spread
from fedparity.metrics.vectors import Direction, FloatArray, as_pair, as_vector

Verdict = Literal["levelling_down", "genuine", "none"]


def loss_gap(loss: ArrayLike, lstar: ArrayLike) -> FloatArray:
    """``r_k = L_k - L*_k`` for every client; NaN where either is."""
    losses, optima = np.asarray(loss, np.float64), np.asarray(lstar, np.float64)
    if losses.shape != optima.shape:
        raise InputError(f"losses of shape {losses.shape} but lstar of shape {optima.shape}")
    return losses - optima


def gap_variance(gaps: ArrayLike) -> float:
    """``(1/(K-1)) sum_k (r_k - mean)^2``, EAGLE's sample variance; NaN for a single client."""
    return spread.sample_variance(gaps)


def gap_variance_pop(gaps: ArrayLike) -> float:
    """``(1/K) sum_k (r_k - mean)^2``, as an extra: (K-1)/K times :func:`gap_variance`."""
    return spread.variance(gaps)


def max_gap(gaps: ArrayLike) -> float:
    """``max_k r_k``, the gap of the worst client; lower is better."""
    return float(as_vector(gaps).max())


def min_gap(gaps: ArrayLike) -> float:
    """``min_k r_k``, the gap of the best client; lower is better."""
    return float(as_vector(gaps).min())


def gap_range(gaps: ArrayLike) -> float:
    """``max_k r_k - min_k r_k``."""
    return max_gap(gaps) - min_gap(gaps)


def gamma_trajectory(gaps: Iterable[ArrayLike]) -> FloatArray:
    """``Gamma_t = max_{s <= t} (max_k r_k(w_s) - min_k r_k(w_s))`` over the evaluated models.

    EAGLE's heterogeneity Gamma is the supremum of that range over the whole model class; its
    estimate from the models a run has met is a lower bound, which can only grow, so the whole
    trajectory is returned and its last entry is the estimate. A model whose range is NaN does not
    move it.

    Parameters
    ----------
    gaps
        One row of loss gaps for every evaluated model, in the order of evaluation.
    """
    ranges = np.array([gap_range(row) for row in gaps], dtype=np.float64)
    return np.fmax.accumulate(ranges)


def faa(loss: ArrayLike, optimal: ArrayLike) -> float:
    """``max_{i,j} |E_i - E_j| = max E - min E`` with ``E_k = L_k - Lopt_k``; lower is better.

    FOCUS's fairness via agent awareness. ``Lopt_k`` is the best loss on client k's distribution: of
    a model of its own, or of one trained on the pooled data of its kind. With ``Lopt = L*`` it is
    the largest minus the smallest loss gap.
    """
    return gap_range(loss_gap(loss, optimal))


def participation_rate(gaps: ArrayLike, tol: float = 0.0) -> float:
    """``(1/K) #{k : r_k < -tol}``, the share of clients that gain from joining (strictly).

    Known as the incentivised participation rate (IPR).
    """
    if not tol >= 0:
        raise InputError(f"tol is a number >= 0, got {tol:g}")
    vector = as_vector(gaps)
    return float("nan") if np.isnan(vector).any() else float(np.mean(vector < -tol))


def mean_benefit(gaps: ArrayLike) -> float:
    """``(1/K) sum_k max(0, -r_k)``, what the clients that gain gain, over all clients."""
    return float(np.maximum(0.0, -as_vector(gaps)).mean())


@dataclass(frozen=True)
class Pareto:
    """Shares of the clients that are better, worse and equally well off; they sum to one."""

    better: float
    worse: float
    equal: float


def pareto(
    values: ArrayLike, baseline: ArrayLike, *, better: Direction, tol: float = 0.0
) -> Pareto:
    """Count who is better off than under a baseline: differences within ``tol`` are equal.

    Parameters
    ----------
    values, baseline
        One number a client, in the same order of clients.
    better
        ``"higher"`` for accuracies, ``"lower"`` for losses and gaps.
    """
    if not tol >= 0:
        raise InputError(f"tol is a number >= 0, got {tol:g}")
    now, before = as_pair(values, baseline, what="baseline")
    if np.isnan(now).any():
        return Pareto(float("nan"), float("nan"), float("nan"))
    gain = now - before if better == "higher" else before - now
    up, down = int(np.sum(gain > tol)), int(np.sum(gain < -tol))
    return Pareto(up / gain.size, down / gain.size, (gain.size - up - down) / gain.size)


@dataclass(frozen=True)
class LevellingDown:
    """Whether a smaller gap variance was bought by harming the best-off client.

    Attributes
    ----------
    verdict
        ``levelling_down`` if ``dV < 0``, ``dW >= 0`` and ``dB > 0``: the gaps are closer, the worst
        client is no better off and the best one is worse off. ``genuine`` if ``dV < 0`` and
        ``dW < 0``: closer, and the worst client is better off. Else ``none``.
    dV, dW, dB
        Change against the baseline of the sample variance, the largest and the smallest gap.
    """

    verdict: Verdict
    dV: float
    dW: float
    dB: float


def levelling_down(gaps: ArrayLike, baseline: ArrayLike) -> LevellingDown:
    """Compare the loss gaps with those of a baseline, usually FedAvg: see :class:`LevellingDown`.

    A change that is not defined (a single client has no variance) gives the verdict ``none``.
    """
    now, before = as_pair(gaps, baseline, what="baseline")
    changes = (
        gap_variance(now) - gap_variance(before),
        max_gap(now) - max_gap(before),
        min_gap(now) - min_gap(before),
    )
    return LevellingDown(verdict(*changes), *changes)


def verdict(d_variance: float, d_worst: float, d_best: float) -> Verdict:
    """Return what the three changes of :class:`LevellingDown` amount to."""
    if d_variance < 0 and d_worst < 0:
        return "genuine"
    if d_variance < 0 and d_worst >= 0 and d_best > 0:
        return "levelling_down"
    return "none"
