"""How evenly a number is spread over the clients.

``a_k`` is the number of client k (an accuracy in percent, unless said otherwise), K the number of
clients. Every function takes the values of all K clients, not only of those that took part in a
round, and returns one float; the conventions for missing values are in
:mod:`fedparity.metrics.vectors`.

Two divisors are in use and are never mixed: *pop* is K, *sample* is K - 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedparity.errors import InputError
from fedparity.metrics.vectors import Direction, FloatArray, as_vector, as_weights


def client_mean(values: ArrayLike) -> float:
    """``(1/K) sum_k a_k``: every client counts the same.

    The "Ave." of the FedFV paper and the headline of this library. EAGLE's "balanced accuracy
    across clients" is left undefined by its paper; this is the reading taken here, and
    :func:`balanced_accuracy` is the other one.
    """
    return float(as_vector(values).mean())


def pooled(values: ArrayLike, weights: ArrayLike) -> float:
    """``sum_k n_k a_k / sum_k n_k``: every example counts the same.

    With the numbers of test examples as weights, the q-FFL paper's "average" and, for a single
    global test set, the "global accuracy".
    """
    vector, parts = as_weights(values, weights)
    return float(parts @ vector)


def balanced_accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """``(1/C) sum_c recall_c`` over the pooled predictions, a fraction in [0, 1].

    ``recall_c`` is the share of the examples of class c that are predicted as c; C counts the
    classes that occur among ``labels``, absent ones are skipped.
    """
    truth, guess = np.asarray(labels), np.asarray(predictions)
    if truth.ndim != 1 or truth.shape != guess.shape:
        raise InputError(f"labels of shape {truth.shape} but predictions of shape {guess.shape}")
    recalls = [float(np.mean(guess[truth == one] == one)) for one in np.unique(truth)]
    return client_mean(recalls)


def variance(values: ArrayLike) -> float:
    """Population variance ``(1/K) sum_k (a_k - mean)^2``.

    By it q-FFL and FedEBA+ (Definition 3.1) compare methods. For accuracies in percent the
    unit is percent^2, 10^4 times the variance of fractions.
    """
    return float(as_vector(values).var())


def sample_variance(values: ArrayLike) -> float:
    """Sample variance ``(1/(K-1)) sum_k (a_k - mean)^2``; NaN for a single client.

    The variance of the EAGLE paper (its Definition 1), of losses or of loss gaps.
    """
    vector = as_vector(values)
    return float(vector.var(ddof=1)) if vector.size > 1 else float("nan")


def weighted_variance(values: ArrayLike, weights: ArrayLike) -> float:
    """``sum_k p_k (a_k - sum_j p_j a_j)^2`` with ``p_k = n_k / sum_j n_j``.

    The variance a random *example* sees. Small clients hardly enter, so a model that fails all of
    them can still look even; the papers mean :func:`variance`, where each client counts once.
    """
    vector, parts = as_weights(values, weights)
    return float(parts @ (vector - parts @ vector) ** 2)


def std(values: ArrayLike) -> float:
    """Population standard deviation ``sqrt(variance)``, in the unit of the values.

    The "Var." columns of the FedFV tables and some "Std." columns of FedEBA+ are this number.
    """
    return float(as_vector(values).std())


def worst_share(
    values: ArrayLike,
    share: float,
    *,
    better: Direction = "higher",
    weights: ArrayLike | None = None,
) -> float:
    """Mean over the worst ``h = max(1, floor(share K + 1e-9))`` clients.

    ``share`` is 0.05 or 0.1 in the papers. The mean is unweighted, as in q-FFL, FedFV and
    FedEBA+; AAggFF weights it by test size: pass these as ``weights``. For losses write
    ``better="lower"``.
    """
    return _share(values, share, worst=True, better=better, weights=weights)


def best_share(
    values: ArrayLike,
    share: float,
    *,
    better: Direction = "higher",
    weights: ArrayLike | None = None,
) -> float:
    """Mean over the best ``h = max(1, floor(share K + 1e-9))`` clients; see :func:`worst_share`."""
    return _share(values, share, worst=False, better=better, weights=weights)


def worst_client(values: ArrayLike, *, better: Direction = "higher") -> float:
    """``min_k a_k``, or ``max_k a_k`` for a number of which lower is better (a loss)."""
    vector = as_vector(values)
    return float(vector.min() if better == "higher" else vector.max())


def parity_gap(values: ArrayLike, share: float = 0.1) -> float:
    """Mean of the highest tenth minus mean of the lowest tenth, AAggFF's accuracy parity gap."""
    return best_share(values, share) - worst_share(values, share)


def coefficient_of_variation(values: ArrayLike) -> float:
    """``std / mean`` (pop) of numbers >= 0; Table 19 of the FedEBA+ paper.

    All values zero counts as all values equal, here and in the five numbers below.
    """
    relative = _relative(values)
    return float(relative.std() / relative.mean())


def angle_to_uniform(values: ArrayLike) -> float:
    """``arccos(sum_k a_k / (sqrt(K) ||a||))`` in degrees, of numbers >= 0; FedEBA+, FedMDFG.

    Computed as ``arctan(std / mean)``, which is the same angle and, unlike the arc cosine of a
    number near one, keeps its digits when the values are nearly equal.
    """
    return float(np.degrees(np.arctan(coefficient_of_variation(values))))


def kl_to_uniform(values: ArrayLike) -> float:
    """``sum_k q_k ln(K q_k)`` with ``q_k = a_k / sum_j a_j`` and ``0 ln 0 = 0``; FedEBA+.

    It is ``ln K - entropy``, and about ``CV^2 / 2`` where the coefficient of variation is small.
    """
    relative = _relative(values)
    ratio = relative / relative.mean()
    return float(_x_log_x(ratio).mean())


def entropy(values: ArrayLike) -> float:
    """``-sum_k q_k ln q_k`` with ``q_k = a_k / sum_j a_j``; at most ``ln K``, for equal values."""
    relative = _relative(values)
    return 0.0 - float(_x_log_x(relative / relative.sum()).sum())


def jain(values: ArrayLike) -> float:
    """Jain's index ``(sum_k a_k)^2 / (K sum_k a_k^2)`` in [1/K, 1], 1 for equal values.

    It is ``cos^2`` of :func:`angle_to_uniform` and ``1 / (1 + CV^2)``.
    """
    relative = _relative(values)
    return float(relative.mean() ** 2 / np.mean(relative**2))


def gini(values: ArrayLike) -> float:
    """``sum_ij |a_i - a_j| / (2 K^2 mean)`` in [0, (K-1)/K], 0 for equal values.

    Computed from the ascending values as ``sum_i (2 i - K - 1) a_(i) / (K sum_k a_k)``.
    """
    ascending = np.sort(_relative(values))
    clients = ascending.size
    rank = np.arange(1, clients + 1)
    return float(((2 * rank - clients - 1) @ ascending) / (clients * ascending.sum()))


def _share(
    values: ArrayLike, share: float, *, worst: bool, better: Direction, weights: ArrayLike | None
) -> float:
    if not 0 < share <= 1:
        raise InputError(f"a share of the clients is in (0, 1], got {share:g}")
    vector = as_vector(values)
    count = max(1, int(share * vector.size + 1e-9))
    ascending = np.argsort(vector, kind="stable")
    chosen = ascending[:count] if worst == (better == "higher") else ascending[-count:]
    if weights is None:
        return float(vector[chosen].mean())
    vector, parts = as_weights(values, weights)
    return pooled(vector[chosen], parts[chosen])


def _relative(values: ArrayLike) -> FloatArray:
    """Return the values divided by the largest: the numbers that use it do not see the unit."""
    vector = as_vector(values)
    if (vector < 0).any():
        raise InputError(f"relative spread is defined for numbers >= 0, got {vector.min():g}")
    largest = vector.max()
    return vector / largest if largest != 0 else np.ones_like(vector)


def _x_log_x(values: FloatArray) -> FloatArray:
    """Return ``x ln x``, 0 at 0; to import SciPy for it would cost each command 0.2 seconds."""
    return values * np.log(np.where(values > 0, values, 1.0))
