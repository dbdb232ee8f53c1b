"""What a sample says of its mean, for many clients at once: t intervals and tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Means:
    """Size, mean, sample standard deviation and skewness of each client's values, ``[K]``."""

    n: npt.NDArray[np.int64]
    mean: Vector
    std: Vector
    skewness: Vector

    @classmethod
    def of(cls, values: Vector, owner: npt.NDArray[np.int64], clients: int) -> Means:
        """Return those of ``values``, of which each belongs to the client ``owner``.

        A client without values has NaN, as has one with a value that is not finite.
        """
        n = np.bincount(owner, minlength=clients)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = np.bincount(owner, values, clients) / n
            off = values - mean[owner]
            second = np.bincount(owner, off**2, clients)
            third = np.bincount(owner, off**3, clients)
            std = np.sqrt(second / np.where(n > 1, n - 1, np.nan))
            skewness = np.where(second > 0, (third / n) / (second / n) ** 1.5, 0.0)
        return cls(n, mean, std, skewness)

    def interval(self, confidence: float) -> tuple[Vector, Vector]:
        """Return the ends of ``mean -+ t s / sqrt(n)``; NaN with fewer than two values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            error = self.std / np.sqrt(self.n)
        return student(self.mean, error, self.n, confidence)

    def pvalues(self, null: float = 0.0) -> Vector:
        """Return two-sided p-values of the mean being ``null``, also where values are skewed.

        The larger one of the t test's and of Hall's, which corrects the statistic for skewness.

        Notes
        -----
        With ``S = (mean - null) / s`` and skewness g, Hall's statistic is
        ``sqrt(n) (S + g S^2 / 3 + g^2 S^3 / 27 + g / (6 n))``. A long tail that a sample has
        missed makes the t test sure too early, on one side; Hall's statistic is sure too early on
        samples without skewness. If both statistics do not have the same sign, nothing is sure.

        References
        ----------
        P. Hall: On the removal of skewness by transformation. Journal of the Royal Statistical
        Society B 54 (1992), 221-228.
        """
        from scipy.special import stdtr

        n, g = self.n, self.skewness
        with np.errstate(invalid="ignore", divide="ignore"):
            s = (self.mean - null) / self.std
            plain = np.sqrt(n) * s
            hall = np.sqrt(n) * (s + g * s**2 / 3 + g**2 * s**3 / 27 + g / (6 * n))
            both = np.where(np.sign(plain) == np.sign(hall), np.minimum(abs(plain), abs(hall)), 0.0)
            found: Vector = 2 * stdtr(n - 1, -np.where(np.isnan(s), np.nan, both))
        return found


def student(
    mean: Vector, error: Vector, n: npt.ArrayLike, confidence: float
) -> tuple[Vector, Vector]:
    """Return the ends of Student's interval from standard errors; NaN with fewer than two values.

    >>> low, high = student(np.array(2.0), np.array(3.0**-0.5), 3, 0.95)
    >>> print(f"{low:.3f} {high:.3f}")
    -0.484 4.484
    """
    from scipy.special import stdtrit  # scipy.stats takes four times as long to import

    with np.errstate(invalid="ignore"):
        half = stdtrit(np.asarray(n) - 1, (1 + confidence) / 2) * error
    return mean - half, mean + half
