"""Groups of clients as bits of a number, and which of them are trained."""

from __future__ import annotations

import numpy as np

from fedparity.errors import InputError
from fedparity.learning.seeds import generator

EVERY = 10
"""Clients up to which every coalition is trained."""
MOST = 40
"""Clients up to which coalitions are sampled."""


def members(group: int) -> tuple[int, ...]:
    """Return the clients of a group, ascending.

    >>> members(0b1101)
    (0, 2, 3)
    """
    return tuple(k for k in range(group.bit_length()) if group >> k & 1)


def group_of(clients: tuple[int, ...]) -> int:
    """Return the group of some clients.

    >>> bin(group_of((0, 2, 3)))
    '0b1101'
    """
    return sum(1 << k for k in set(clients))


def trained(clients: int, seed: int) -> list[int]:
    """Return the groups to be trained, small ones first.

    Up to :data:`EVERY` clients these are all. Of more, the clients are put around a table in an
    order drawn from the seed, and every arc of neighbours is a group: ``K (K - 1) + 1`` groups, in
    which the others join each client one after another, in an order that is uniform. Whatever the
    seed, each client alone, all without one, and all are among them.

    >>> trained(2, seed=0)
    [1, 2, 3]
    >>> len(trained(12, seed=0))
    133
    """
    if clients < 2:
        raise InputError("coalitions need at least two clients")
    if clients > MOST:
        raise InputError(
            f"coalitions of {clients} clients: at most {MOST} are taken; choose them by "
            "federation.only(...)"
        )
    if clients <= EVERY:
        found = set(range(1, 1 << clients))
    else:
        found = {group for arcs in joining(clients, seed) for group in arcs}
    return sorted(found, key=lambda group: (group.bit_count(), group))


def joining(clients: int, seed: int) -> list[list[int]]:
    """Return for each client the groups that grow from it alone to all, one neighbour at a time."""
    order = generator(seed, "coalitions").permutation(clients)
    place = np.argsort(order)
    rows = []
    for k in range(clients):
        along = np.roll(order, -place[k])
        rows.append([int(group) for group in np.cumsum([1 << int(c) for c in along])])
    return rows
