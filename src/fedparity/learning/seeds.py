"""Every random draw has an address: ``seed_for(run, purpose, round, client)``.

No generator is shared, so neither the order nor the place of execution changes a number. The
generator is SplitMix64, a counter hashed by a fixed mixing function; it is vectorised over clients
with numpy, and exists a second time in torch integers for draws inside lifted client code.

References
----------
Steele, Lea, Flood. Fast splittable pseudorandom number generators. OOPSLA 2014.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

GAMMA = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
WORD = 0xFFFFFFFFFFFFFFFF

FEW = 16
"""Clients up to whom plain integers are faster than arrays."""

KEPT = 1 << 14
"""Numbers that a function may make and still keep for the next time."""

T = TypeVar("T")
Keys = npt.NDArray[np.uint64]


def _mix(z: Keys) -> Keys:
    """Return the keys mixed; they are overwritten, so they must be the caller's own."""
    shifted = np.empty_like(z)
    for by, factor in ((30, MIX_1), (27, MIX_2), (31, None)):
        np.right_shift(z, np.uint64(by), out=shifted)
        np.bitwise_xor(z, shifted, out=z)
        if factor is not None:
            np.multiply(z, np.uint64(factor), out=z)
    return z


def _mix_int(z: int) -> int:
    """Return one key mixed, without the cost of arrays."""
    z = (z ^ z >> 30) * MIX_1 & WORD
    z = (z ^ z >> 27) * MIX_2 & WORD
    return z ^ z >> 31


@lru_cache(maxsize=256)
def _word(purpose: str) -> int:
    return _digest(purpose)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _key(run: int, purpose: str, round: int) -> int:
    key = run & WORD
    for part in (_word(purpose), round):
        key = _mix_int(key + GAMMA + (part & WORD) & WORD)
    return key


def _seed(key: int, client: int) -> int:
    return _mix_int(_mix_int(key + client * GAMMA & WORD) + GAMMA & WORD)


def seeds_for(run: int, purpose: str, round: int, clients: npt.ArrayLike) -> Keys:
    """Return one 64-bit seed a client, independent of which other clients are asked for."""
    key, numbers = _key(run, purpose, round), np.asarray(clients, dtype=np.int64)
    if numbers.ndim == 1 and len(numbers) <= FEW:
        return np.array([_seed(key, client) for client in numbers.tolist()], dtype=np.uint64)
    ids = numbers.astype(np.uint64)
    return _mix(_mix(np.uint64(key) + ids * np.uint64(GAMMA)) + np.uint64(GAMMA))


def seed_for(run: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """Return the 64-bit seed of one draw.

    >>> seed_for(0, "batches", 3, 7) == seed_for(0, "batches", 3, 7) != seed_for(0, "batches", 3, 8)
    True
    """
    return _seed(_key(run, purpose, round), int(client))


def seeds_of(run: int, purpose: str, names: Sequence[str]) -> Keys:
    """Return one 64-bit seed a name, independent of which other names there are.

    >>> bool(seeds_of(0, "split", ["a", "b"])[1] == seeds_of(0, "split", ["b"])[0])
    True
    """
    ids = np.array([_digest(name) for name in names], dtype=np.uint64)
    return seeds_for(run, purpose, 0, ids.view(np.int64))


def draws(seeds: Keys, places: npt.NDArray[np.int64]) -> Keys:
    """Return for each seed the draw at its place: 64 bits that look random."""
    return _mix(seeds + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA))


def generator(run: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return a numpy generator at the given address."""
    return np.random.Generator(np.random.Philox(seed_for(run, purpose, round, client)))


def permutations(
    seeds: Keys, epochs: int, n: int, first: int | None = None
) -> npt.NDArray[np.int64]:
    """Return ``[len(seeds), epochs, n]``: one permutation of ``range(n)`` a seed and epoch.

    Of each only the ``first`` places, if given. The position is kept in the low bits of the sort
    key, so that no two keys are equal and the order does not depend on the sorting algorithm.
    """
    bits = max(1, int(n - 1).bit_length())
    count, place = kept_if_small(_counting, epochs * n)(epochs, n)
    keys = _mix(seeds[:, None, None] + count)
    low = np.uint64((1 << bits) - 1)
    keys &= ~low
    keys |= place
    if first is not None and 2 * first < n:
        keys = np.partition(keys, first - 1, axis=-1)[..., :first]
    keys = np.sort(keys, axis=-1)[..., :first]
    keys &= low
    return keys.view(np.int64)


def kept_if_small(function: _lru_cache_wrapper[T], numbers: int) -> Callable[..., T]:
    """Return a function that remembers, without its memory if it makes too many numbers."""
    return function if numbers <= KEPT else function.__wrapped__


@lru_cache(maxsize=64)
def _counting(epochs: int, n: int) -> tuple[Keys, Keys]:
    """Return the counter ``[epochs, n]`` of the draws of permutations, and the places ``[n]``."""
    count = np.arange(1, epochs * n + 1, dtype=np.uint64).reshape(epochs, n) * np.uint64(GAMMA)
    return count, np.arange(n, dtype=np.uint64)


def uniform(seed: Tensor, draw: int, size: int, dtype: torch.dtype) -> Tensor:
    """Return ``size`` numbers in [0, 1) from an int64 seed tensor, in liftable torch code.

    Different values of ``draw`` give independent streams of the same seed.
    """
    stream = _mix_torch(seed + _signed(GAMMA * (draw + 1) & WORD))
    count = torch.arange(1, size + 1, dtype=torch.int64)
    bits = _mix_torch(stream + count * _signed(GAMMA))
    return (_shift(bits, 40)).to(dtype) / float(1 << 24)


def normal(seed: Tensor, draw: int, size: int, dtype: torch.dtype) -> Tensor:
    """Return ``size`` standard normal numbers (Box-Muller) from an int64 seed tensor."""
    even = size + size % 2
    u = uniform(seed, draw, even, dtype)
    radius = torch.sqrt(-2 * torch.log1p(-u[: even // 2]))
    angle = 2 * torch.pi * u[even // 2 :]
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])[:size]


def unknown_to_all(like: Tensor) -> Tensor:
    """Return seeds from the operating system, for noise that nobody must be able to subtract."""
    words = secrets.token_bytes(8 * like.numel())
    return torch.from_numpy(np.frombuffer(words, dtype=np.int64).copy()).view(like.shape)


def salted(seed: Tensor, purpose: str) -> Tensor:
    """Return other seeds for another purpose, in liftable torch code."""
    return seed ^ _signed(_word(purpose))


def as_tensor(seeds: Keys) -> Tensor:
    """Return seeds as int64 tensors, the same 64 bits."""
    return torch.from_numpy(seeds.view(np.int64))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shift(z: Tensor, by: int) -> Tensor:
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix_torch(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _signed(MIX_1)
    z = (z ^ _shift(z, 27)) * _signed(MIX_2)
    return z ^ _shift(z, 31)
