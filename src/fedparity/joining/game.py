"""The arithmetic of coalitions: Shapley values and partitions that nobody wants to leave."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import comb

import numpy as np
import numpy.typing as npt

from fedparity.joining.groups import members

Losses = Mapping[int, npt.NDArray[np.float64]]
"""Of each group the losses of all clients ``[K]``, NaN for those who are not in it."""
Values = npt.NDArray[np.float64]


def shapley(losses: Losses, clients: int) -> Values:
    r"""Return what each client ``j`` (column) brings to the loss of each client ``k`` (row).

    .. math:: \phi_{kj} = \sum_{S \ni k, \not\ni j} \frac{1}{(K - 1) \binom{K - 2}{|S| - 1}}
              \left( L_k(S) - L_k(S \cup \{j\}) \right)

    The players of client k's game are the others; positive means that j lowers k's loss. A row sums
    to what k gains from being with all: ``L_k({k}) - L_k(N)``. The diagonal is 0.

    >>> pair = {1: np.array([3.0, np.nan]), 2: np.array([np.nan, 2.0]), 3: np.array([1.0, 2.5])}
    >>> shapley(pair, 2).tolist()
    [[0.0, 2.0], [-0.5, 0.0]]
    """
    found = np.zeros((clients, clients))
    for group, loss in losses.items():
        inside = list(members(group))
        if len(inside) == clients:
            continue
        share = 1 / ((clients - 1) * comb(clients - 2, len(inside) - 1))
        for j in set(range(clients)).difference(inside):
            gained = loss[inside] - losses[group | 1 << j][inside]
            found[inside, j] += share * gained
    return found


def sampled_shapley(losses: Losses, rows: list[list[int]]) -> Values:
    """Return the same, estimated from one order of joining a client: see :func:`groups.joining`."""
    found = np.zeros((len(rows), len(rows)))
    for k, growing in enumerate(rows):
        for before, after in pairwise(growing):
            found[k, (after ^ before).bit_length() - 1] = losses[before][k] - losses[after][k]
    return found


def partitions(clients: int) -> npt.NDArray[np.int64]:
    """Return every partition of the clients: in each row, the block of each client as a group.

    >>> partitions(2).tolist()
    [[3, 3], [1, 2]]
    """
    blocks: list[list[int]] = [[]]
    for k in range(clients):
        blocks = [
            [*others[:place], joined | 1 << k, *others[place + 1 :]]
            for others in blocks
            for place, joined in enumerate([*others, 0])
        ]
    rows = [[next(b for b in found if b >> k & 1) for k in range(clients)] for found in blocks]
    return np.array(rows, dtype=np.int64)


def stable(losses: Losses, clients: int) -> list[tuple[int, ...]]:
    """Return the partitions that no group would leave: the core of the game.

    A group would leave if each of its members had a lower loss in it. All groups must be known.

    >>> apart = {1: np.array([1.0, np.nan]), 2: np.array([np.nan, 2.0]), 3: np.array([3.0, 1.0])}
    >>> stable(apart, 2)
    [(1, 2)]
    """
    table = np.full((1 << clients, clients), np.nan)
    for group, loss in losses.items():
        table[group] = loss
    left = partitions(clients)
    for group in losses:
        inside = list(members(group))
        now = table[left[:, inside], inside]
        left = left[~(table[group, inside] < now).all(axis=1)]
    return [tuple(sorted(set(row), key=lambda b: b & -b)) for row in left.tolist()]
