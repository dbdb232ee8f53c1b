"""The shortest vector among mixtures of given ones: a small quadratic program on their products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]
SLACK = 1e-10
"""By which bounds and multipliers of the exact solution may be off, for vectors of about length 1.
"""
REGULAR = 1e4
"""What no solution reaches but one of a system that is nearly singular."""
ATTEMPTS = 30
"""Corrections of the guess which bounds are in force."""


def min_norm(
    gram: Numbers, centre: Numbers, radius: float = 1.0, tolerance: float = 1e-8
) -> Numbers:
    r"""Return the mixture :math:`\lambda` of least length near a given one.

    .. math:: \min_\lambda \|\textstyle\sum_k \lambda_k v_k\|^2 \quad\text{where}\quad
              \lambda_k \ge 0, \quad \sum_k \lambda_k = 1, \quad |\lambda_k - c_k| \le \epsilon

    Parameters
    ----------
    gram
        The products :math:`v_j\cdot v_k`, ``[m, m]``. Vectors of about length 1 are solved best.
    centre
        :math:`c`, itself a mixture, ``[m]``.
    radius
        :math:`\epsilon`: 0 returns the centre; 1 leaves the simplex as the only bound.
    tolerance
        Of the squared length, where the solver stops.

    Notes
    -----
    Given which bounds hold with equality, the solution is that of a linear system, exact to
    rounding. They are guessed and corrected a few times. Where that goes in circles, the bounds of
    another solver are tried, and if they do not fit either, its answer stands: non-negative least
    squares where the simplex is the only bound, else SLSQP to the tolerance. If several mixtures
    are equally short, one of them is returned: the vector is the same for all.

    Examples
    --------
    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> min_norm(vectors @ vectors.T, np.array([0.9, 0.1])).round(4).tolist()
    [0.5, 0.5]
    >>> min_norm(vectors @ vectors.T, np.array([0.9, 0.1]), radius=0.1).round(4).tolist()
    [0.8, 0.2]
    """
    low, high = np.maximum(centre - radius, 0.0), np.minimum(centre + radius, 1.0)
    if len(centre) == 1 or radius == 0:
        return centre.copy()
    exact = _exact(gram, centre, low, high)
    if exact is not None:
        return exact
    near = nonnegative(gram) if radius >= 1 else None
    if near is None:
        near = slsqp(gram, centre, low, high, tolerance)
    exact = _exact(gram, near, low, high)
    return near if exact is None else exact


def nonnegative(gram: Numbers) -> Numbers | None:
    r"""Return the solution on the whole simplex by non-negative least squares, or None if it fails.

    For :math:`p = t q` with q on the simplex the least of :math:`\|V p\|^2 + (1 - \sum_k p_k)^2`
    over t is :math:`\ell / (1 + \ell)` with :math:`\ell = \|V q\|^2`, which rises with
    :math:`\ell`: the best p is the best q times a number.
    """
    from scipy.optimize import nnls  # seldom needed, and slow to import

    try:
        values, vectors = np.linalg.eigh(gram)
        roots = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        rows = np.vstack([roots, np.ones(len(gram))])
        p: Numbers = nnls(rows, np.append(np.zeros(len(gram)), 1.0))[0]
    except (np.linalg.LinAlgError, RuntimeError):  # not finite, or too many iterations
        return None
    found: Numbers = p / p.sum()
    return found


def slsqp(
    gram: Numbers, centre: Numbers, low: Numbers, high: Numbers, tolerance: float = 1e-8
) -> Numbers:
    """Return the solution between bounds to a tolerance, by sequential least squares."""
    from scipy.optimize import minimize  # seldom needed, and slow to import

    found = minimize(
        lambda p: 0.5 * float(p @ gram @ p),
        centre,
        jac=lambda p: gram @ p,
        method="SLSQP",
        bounds=np.stack([low, high], 1),
        constraints={
            "type": "eq",
            "fun": lambda p: p.sum() - 1.0,
            "jac": lambda p: np.ones_like(p),
        },
        options={"ftol": tolerance, "maxiter": 200},
    )
    return _feasible(np.clip(found.x, low, high), low, high)


def _exact(gram: Numbers, near: Numbers, low: Numbers, high: Numbers) -> Numbers | None:
    """Return the solution whose bounds in force are about those of ``near``, or None.

    Linear systems are solved by elimination and, where that fails for they have several solutions,
    by least squares.
    """
    found = _corrected(gram, near, low, high, _regular)
    return _corrected(gram, near, low, high, _any) if found is None else found


def _corrected(
    gram: Numbers,
    near: Numbers,
    low: Numbers,
    high: Numbers,
    solve: Callable[[Numbers, Numbers], Numbers | None],
) -> Numbers | None:
    """Return the solution whose bounds in force are about those of ``near``, or None.

    A bound that the linear system violates is put in force, one that holds the length up is let go,
    until neither is left.
    """
    margin = 1e-4 * (high - low).max()
    at_low, at_high = near <= low + margin, near >= high - margin
    for _ in range(ATTEMPTS):
        free = ~(at_low | at_high)
        p = np.where(at_low, low, high)
        if free.any():
            solved = solve(*_system(gram, p, free))
            if solved is None:
                return None
            p[free], pull = solved[:-1], float(solved[-1])
        else:
            pull = _between(gram @ p, at_low, at_high)
        slope = gram @ p
        if max(abs(p.sum() - 1.0), np.abs(slope[free] - pull).max(initial=0.0)) > SLACK:
            return None
        under, over = free & (p < low - SLACK), free & (p > high + SLACK)
        loose_low, loose_high = at_low & (slope < pull - SLACK), at_high & (slope > pull + SLACK)
        if not (under | over | loose_low | loose_high).any():
            return _feasible(np.clip(p, low, high), low, high)
        at_low, at_high = (at_low & ~loose_low) | under, (at_high & ~loose_high) | over
    return None


def _system(gram: Numbers, p: Numbers, free: Rows) -> tuple[Numbers, Numbers]:
    """Return the linear system of the free entries, whose slopes are equal, and of that slope."""
    count = int(free.sum())
    system = np.zeros((count + 1, count + 1))
    system[:count, :count] = gram[np.ix_(free, free)]
    system[:count, count], system[count, :count] = -1.0, 1.0
    wanted = np.append(-gram[np.ix_(free, ~free)] @ p[~free], 1.0 - p[~free].sum())
    return system, wanted


def _regular(system: Numbers, wanted: Numbers) -> Numbers | None:
    """Return the solution of a linear system, or None where there are, or nearly are, several."""
    try:
        solved = np.asarray(np.linalg.solve(system, wanted), np.float64)
    except np.linalg.LinAlgError:
        return None
    return solved if np.abs(solved).max() < REGULAR else None


def _any(system: Numbers, wanted: Numbers) -> Numbers:
    """Return a solution of a linear system that may have several."""
    return np.asarray(np.linalg.lstsq(system, wanted, rcond=None)[0], np.float64)


def _between(slope: Numbers, at_low: Rows, at_high: Rows) -> float:
    """Return a multiplier that fits all entries at their bounds, if there is one."""
    least = slope[at_low].min(initial=np.inf)
    return float(min(least, slope[at_high].max(initial=-np.inf)))


def _feasible(p: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """Return the mixture with what clipping took from its sum put back where there is room."""
    missing = 1.0 - p.sum()
    room = high - p if missing > 0 else p - low
    return p + missing * room / room.sum() if room.sum() > abs(missing) else p
