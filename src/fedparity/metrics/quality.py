"""How good a model's outputs are on the examples of one client: scikit-learn's metrics, in numpy.

Each function takes the targets ``[n]`` of one client and what the model says of them: the
probability of each class ``[n, C]``, or values ``[n]``. It returns one float, which is NaN where
the metric has no meaning on these examples, and equals scikit-learn's wherever that has one. They
are written in numpy because an evaluation calls them once a client.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Target = npt.NDArray[np.generic]
Output = npt.NDArray[np.float64]
BINS = 10
"""Bins of equal width in which the calibration error compares confidence and accuracy."""


def auc(target: Target, output: Output) -> float:
    """Area under the receiver operating characteristic; of more than two classes, their mean.

    Of two classes it is the probability that an example of the second has a higher output than one
    of the first. Of more, each class that the client has is held against all others.
    """
    if output.shape[1] == 2:
        return _area(target == 1, output[:, 1])
    classes = np.unique(target).astype(np.int64)
    return float(np.mean([_area(target == c, output[:, c]) for c in classes]))


def _area(positive: npt.NDArray[np.bool_], score: npt.NDArray[np.float64]) -> float:
    """Return the Mann-Whitney statistic as a share; NaN if one side has no example."""
    above = int(positive.sum())
    below = len(positive) - above
    if not above or not below:
        return np.nan
    _, place, ties = np.unique(score, return_inverse=True, return_counts=True)
    middle = np.cumsum(ties) - (ties - 1) / 2  # equal scores share the mean of their ranks
    ranks = float(middle[place[positive]].sum())
    return (ranks - above * (above + 1) / 2) / (above * below)


def balanced_accuracy(target: Target, output: Output) -> float:
    """Mean over the classes that the client has of the share of their examples that are right."""
    right = output.argmax(1) == target
    return float(np.mean([right[target == c].mean() for c in np.unique(target)]))


def f1(target: Target, output: Output) -> float:
    """``2 tp / (2 tp + fp + fn)`` of the second of two classes; of more, the mean over classes.

    Classes are averaged that occur among the client's targets or guesses.
    """
    guess = output.argmax(1)
    classes = np.asarray([1]) if output.shape[1] == 2 else np.union1d(target, guess)
    return float(np.mean([_f1(target == c, guess == c) for c in classes]))


def _f1(truth: npt.NDArray[np.bool_], guess: npt.NDArray[np.bool_]) -> float:
    found = int(truth.sum()) + int(guess.sum())
    return 2 * int((truth & guess).sum()) / found if found else np.nan


def log_loss(target: Target, output: Output) -> float:
    """``-mean ln p(target)``, probabilities clipped to the smallest number beside 0 and 1."""
    least = np.finfo(output.dtype).eps
    given = np.clip(output[np.arange(len(target)), target.astype(np.int64)], least, 1 - least)
    return float(-np.log(given).mean())


def brier(target: Target, output: Output) -> float:
    """``mean sum_c (p_c - 1[target = c])^2``, of two classes half of it."""
    distance = output.copy()
    distance[np.arange(len(target)), target.astype(np.int64)] -= 1
    squares = float(np.square(distance).sum(1).mean())
    return squares / 2 if output.shape[1] == 2 else squares


def calibration_error(target: Target, output: Output) -> float:
    """``sum_b (n_b / n) |accuracy_b - confidence_b|`` over ten bins of the confidence.

    The confidence is the probability of the class that the model guesses.
    """
    sure = output.max(1)
    right = output.argmax(1) == target
    place = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], sure)
    distance = np.bincount(place, right) - np.bincount(place, sure)
    return float(np.abs(distance).sum() / len(sure))


def rmse(target: Target, output: Output) -> float:
    """``sqrt(mean (output - target)^2)``."""
    return float(np.sqrt(np.square(_errors(target, output)).mean()))


def mae(target: Target, output: Output) -> float:
    """``mean |output - target|``."""
    return float(np.abs(_errors(target, output)).mean())


def r2(target: Target, output: Output) -> float:
    """``1 - sum (output - target)^2 / sum (target - mean)^2``."""
    values = target.astype(np.float64)
    spread = float(np.square(values - values.mean()).sum())
    if spread == 0:
        return np.nan
    return 1 - float(np.square(_errors(target, output)).sum()) / spread


def _errors(target: Target, output: Output) -> npt.NDArray[np.float64]:
    errors: npt.NDArray[np.float64] = output - target.astype(np.float64)
    return errors
