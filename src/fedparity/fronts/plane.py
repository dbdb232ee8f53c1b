"""Points of a plane in which less is better on both axes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]


def non_dominated(points: Points) -> npt.NDArray[np.bool_]:
    """Return which points ``[N, 2]`` no other is at least as low as on both axes and lower on one.

    >>> non_dominated(np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 2.0]])).tolist()
    [True, True, False]
    """
    no_higher = (points[:, None] <= points[None]).all(axis=2)
    lower = (points[:, None] < points[None]).any(axis=2)
    found: npt.NDArray[np.bool_] = np.logical_not((no_higher & lower).any(axis=0))
    return found


def hypervolume(points: Points, corner: Points) -> float:
    """Return the area that points cover towards a corner: of all that one of them is better than.

    >>> hypervolume(np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([3.0, 3.0]))
    5.0
    """
    below = points[(points < corner).all(axis=1)]
    area, height = 0.0, float(corner[1])
    for x, y in below[np.argsort(below[:, 0], kind="stable")]:
        if y < height:
            area += float((corner[0] - x) * (height - y))
            height = float(y)
    return area


def knee(points: Points) -> int | None:
    """Return the point furthest below the line between the two ends of a front, axes scaled to 1.

    None where no point is below it, as of two points: which end is better is a matter of taste.

    >>> knee(np.array([[0.0, 1.0], [0.1, 0.2], [1.0, 0.0]]))
    1
    """
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(axis=0)) / np.where(span > 0, span, 1)
    sums = scaled.sum(axis=1).round(12)
    return int(np.argmin(sums)) if sums.min() < 1 else None
