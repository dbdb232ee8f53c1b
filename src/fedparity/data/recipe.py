"""A federation from the few values that say how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import spec
from fedparity.data import datasets, noise, partition
from fedparity.data.dataset import Dataset
from fedparity.data.federation import USUAL, Federation
from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed

STRICT = ConfigDict(extra="forbid")
UNDEALT: Mapping[str, Any] = {
    "partition": "natural",
    "clients": None,
    "fractions": USUAL,
    "official": False,
}
"""What a recipe says of a federation that a function makes by itself."""


@dataclass(frozen=True, config=STRICT)
class NoiseStep:
    """One use of :meth:`Federation.with_label_noise`."""

    noise: str
    seed: int = 0
    clients: tuple[str, ...] | None = None


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """What :attr:`Federation.recipe` holds."""

    dataset: str
    partition: str
    clients: int | None = Field(default=None, ge=1)
    seed: int = 0
    fractions: tuple[float, float, float] = USUAL
    official: bool = False
    noise: tuple[NoiseStep, ...] = ()


def rebuild(
    recipe: Mapping[str, Any], data_dir: Path | str | None = None, allowed: Allowed = NOTHING
) -> Federation:
    """Return the federation that a recipe describes; it may name the code that is allowed.

    Examples
    --------
    >>> made = datasets.digits().split("iid", clients=5, seed=3)
    >>> rebuild(made.recipe).fingerprint == made.fingerprint
    True
    """
    if not isinstance(recipe, Mapping):
        raise InputError("a recipe is a table with at least dataset and partition")
    read = spec.call("data", Recipe, {str(name): value for name, value in recipe.items()})
    made = datasets.read(read.dataset, data_dir, allowed, read.seed)
    federation = made if isinstance(made, Federation) else _dealt(made, read, allowed)
    if isinstance(made, Federation) and read != replace(read, **UNDEALT):
        raise InputError(
            f"'{read.dataset}' makes a federation of its own: leave partition, clients, fractions "
            "and official out"
        )
    for step in read.noise:
        wrong = noise.read(step.noise, allowed)
        federation = federation.with_label_noise(wrong, step.seed, step.clients)
    return federation


def _dealt(dataset: Dataset, read: Recipe, allowed: Allowed) -> Federation:
    scheme = partition.read(read.partition, allowed)
    return dataset.split(scheme, read.clients, read.seed, read.fractions, read.official)
