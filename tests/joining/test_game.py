"""Shapley values and stable partitions, against what can be counted by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fedparity.errors import InputError
from fedparity.joining import game
from fedparity.joining.groups import joining, members, trained


def drawn(clients: int, seed: int = 0) -> dict[int, np.ndarray]:
    """Return random losses of every group."""
    rng = np.random.default_rng(seed)
    found = {}
    for group in range(1, 1 << clients):
        found[group] = np.full(clients, np.nan)
        inside = list(members(group))
        found[group][inside] = rng.normal(size=len(inside))
    return found


def test_shapley_values_are_the_mean_over_all_orders_of_joining():
    clients, losses = 4, drawn(4)
    slow = np.zeros((clients, clients))
    for k in range(clients):
        orders = list(permutations([j for j in range(clients) if j != k]))
        for order in orders:
            group = 1 << k
            for j in order:
                slow[k, j] += (losses[group][k] - losses[group | 1 << j][k]) / len(orders)
                group |= 1 << j
    np.testing.assert_allclose(game.shapley(losses, clients), slow, atol=1e-12)


def test_sampled_values_sum_to_what_a_client_gains_from_all_and_have_the_exact_mean():
    clients, losses = 4, drawn(4)
    each = [game.sampled_shapley(losses, joining(clients, seed)) for seed in range(4000)]
    gained = [losses[1 << k][k] - losses[15][k] for k in range(clients)]
    np.testing.assert_allclose(each[0].sum(axis=1), gained, atol=1e-12)
    error = np.std(each, axis=0) / np.sqrt(len(each))
    assert (np.abs(np.mean(each, axis=0) - game.shapley(losses, clients)) <= 5 * error).all()


@pytest.mark.parametrize(("clients", "count"), [(1, 1), (3, 5), (5, 52)])
def test_there_are_as_many_partitions_as_bell_says(clients, count):
    rows = game.partitions(clients)
    assert len({tuple(row) for row in rows.tolist()}) == len(rows) == count
    for row in rows.tolist():
        assert sum(set(row)) == (1 << clients) - 1


def test_a_stable_partition_is_one_that_no_group_would_leave():
    for seed in range(20):
        losses, found = drawn(4, seed), []
        for row in game.partitions(4).tolist():
            leaves = [
                all(loss[k] < losses[row[k]][k] for k in members(g)) for g, loss in losses.items()
            ]
            if not any(leaves):
                found.append(tuple(sorted(set(row), key=lambda b: members(b)[0])))
        assert sorted(game.stable(losses, 4)) == sorted(found)


def test_arcs_hold_everyone_alone_all_but_one_and_all_on_every_seed():
    plans = [set(trained(11, seed)) for seed in range(3)]
    assert all(len(plan) == 11 * 10 + 1 for plan in plans)
    always = {1 << k for k in range(11)} | {2047 ^ 1 << k for k in range(11)} | {2047}
    assert always <= set.intersection(*plans)
    assert plans[0] != plans[1]


@pytest.mark.parametrize(("clients", "told"), [(1, "at least two"), (41, "at most 40")])
def test_too_few_and_too_many_clients_are_refused(clients, told):
    with pytest.raises(InputError, match=told):
        trained(clients, 0)
