"""Seeds: every draw has an address, and the two generators are one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedparity.learning import seeds


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_mixing_gives_the_published_first_number_of_splitmix64():
    # The reference implementation's first output for seed 0.
    first = seeds._mix(np.asarray([seeds.GAMMA], dtype=np.uint64))
    assert int(first[0]) == 0xE220A8397B1DCDAF


def test_torch_and_numpy_mix_alike():
    words = seeds.seeds_for(3, "mix", 1, np.arange(1000))
    in_torch = seeds._mix_torch(seeds.as_tensor(words))
    assert np.array_equal(in_torch.numpy().view(np.uint64), seeds._mix(words))


def test_uniform_numbers_are_those_of_splitmix64():
    word = np.asarray([seeds.seed_for(1, "draw")], dtype=np.uint64)
    drawn = seeds.uniform(seeds.as_tensor(word)[0], 4, 50, torch.float64)
    with np.errstate(over="ignore"):
        stream = seeds._mix(word + np.uint64(seeds.GAMMA * 5 & seeds.WORD))
        counted = np.arange(1, 51, dtype=np.uint64) * np.uint64(seeds.GAMMA)
        bits = seeds._mix(stream + counted)
    assert np.array_equal(drawn.numpy(), (bits >> np.uint64(40)) / 2**24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_fill_the_unit_interval(dtype):
    seed = seeds.as_tensor(seeds.seeds_for(0, "fill", 0, [0]))[0]
    drawn = seeds.uniform(seed, 0, 20_000, dtype)
    assert drawn.dtype == dtype
    assert 0 <= float(drawn.min()) <= float(drawn.max()) < 1
    # 19 degrees of freedom: 43.8 is exceeded once in a thousand seeds.
    assert chi_square(np.histogram(drawn.numpy(), bins=20, range=(0, 1))[0]) < 43.8


def test_normal_numbers_have_mean_zero_and_variance_one():
    seed = seeds.as_tensor(seeds.seeds_for(0, "normal", 0, [0]))[0]
    drawn = seeds.normal(seed, 0, 40_001, torch.float64)
    assert len(drawn) == 40_001
    assert bool(drawn.isfinite().all())
    # Standard errors are 0.005 and 0.0071: five of each.
    assert float(drawn.mean()) == pytest.approx(0, abs=0.025)
    assert float(drawn.var()) == pytest.approx(1, abs=0.036)


def test_different_draws_of_one_seed_differ():
    seed = seeds.as_tensor(seeds.seeds_for(0, "draws", 0, [0]))[0]
    first, second = (seeds.uniform(seed, draw, 100, torch.float64) for draw in (0, 1))
    assert not bool((first == second).any())


@pytest.mark.parametrize("clients", [[5, 1, 9], [*range(seeds.FEW), 10**12]])
def test_a_seed_does_not_depend_on_who_else_is_asked_for(clients):
    together = seeds.seeds_for(7, "batches", 3, clients)
    alone = [seeds.seed_for(7, "batches", 3, client) for client in clients]
    assert together.tolist() == alone


def test_seeds_of_all_addresses_differ():
    found = {
        seeds.seed_for(run, purpose, round, client)
        for run in range(3)
        for purpose in ("batches", "cohort")
        for round in range(10)
        for client in range(50)
    }
    assert len(found) == 3 * 2 * 10 * 50


def test_a_numpy_generator_starts_again_at_its_address():
    first, again, other = (seeds.generator(0, "x", round).random(5) for round in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 65])
def test_permutations_are_permutations(n):
    found = seeds.permutations(seeds.seeds_for(0, "p", 0, np.arange(4)), 3, n)
    assert found.shape == (4, 3, n)
    assert np.array_equal(np.sort(found, axis=-1), np.broadcast_to(np.arange(n), found.shape))


def test_every_order_of_three_is_as_likely():
    found = seeds.permutations(seeds.seeds_for(0, "orders", 0, np.arange(6000)), 1, 3)[:, 0]
    counts = np.unique(found @ [9, 3, 1], return_counts=True)[1]
    # Five degrees of freedom: 20.5 is exceeded once in a thousand.
    assert len(counts) == 6
    assert chi_square(counts) < 20.5
