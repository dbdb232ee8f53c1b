"""A federation from the few values that say how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import spec
from fedparity.data import datasets
from fedparity.data.federation import USUAL, Federation
from fedparity.errors import InputError

STRICT = ConfigDict(extra="forbid")


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


def rebuild(recipe: Mapping[str, Any], data_dir: Path | str | None = None) -> Federation:
    """Return the federation that a recipe describes.

    Examples
    --------
    >>> made = datasets.digits().split("iid", clients=5, seed=3)
    >>> rebuild(made.recipe).fingerprint == made.fingerprint
    True
    """
    if not isinstance(recipe, Mapping):
        raise InputError("a recipe is a table with at least dataset and partition")
    read = spec.call("data", Recipe, {str(name): value for name, value in recipe.items()})
    federation = datasets.load(read.dataset, data_dir).split(
        read.partition, read.clients, read.seed, read.fractions, read.official
    )
    for step in read.noise:
        federation = federation.with_label_noise(step.noise, step.seed, step.clients)
    return federation
