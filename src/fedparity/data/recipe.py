"""A federation from the few values that say how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import spec
from fedparity.data import datasets, noise, own, partition
from fedparity.data.dataset import Dataset
from fedparity.data.doctor import Finding
from fedparity.data.federation import Federation
from fedparity.data.frame import Study, way_of
from fedparity.data.source import USUAL, NoiseStep, TableRecipe
from fedparity.data.table import Table, read_tables
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
    if "table" in recipe:
        told = TableRecipe.read(recipe)
        return noisy(of_table(told, allowed), told.noise, allowed)
    read = spec.call("data", Recipe, {str(name): value for name, value in recipe.items()})
    made = datasets.read(read.dataset, data_dir, allowed, read.seed)
    federation = made if isinstance(made, Federation) else _dealt(made, read, allowed)
    if isinstance(made, Federation) and read != replace(read, **UNDEALT):
        raise InputError(
            f"'{read.dataset}' makes a federation of its own: leave partition, clients, fractions "
            "and official out"
        )
    return noisy(federation, read.noise, allowed)


def table_of(recipe: TableRecipe) -> Table:
    """Return the table that a recipe names, if it is the one that was recorded."""
    named = recipe.table
    pattern = named if isinstance(named, str) else list(named)
    return read_tables(pattern, recipe.client, recipe.sha256)


def studied(recipe: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what is wrong with the table of a recipe or odd about it; nothing is refused."""
    told = TableRecipe.read(recipe)
    found = table_of(told)
    return Study.of(found.frame, told.roles, way_of(told.prepare), found.odd).findings


def of_table(recipe: TableRecipe, allowed: Allowed = NOTHING) -> Federation:
    """Return the federation of own tables, without noise; its preparation may be allowed code."""
    settings = {
        name: value
        for name, value in vars(recipe).items()
        if name not in ("table", "noise", "sha256") and not name.startswith("_")
    }
    if own.is_code(recipe.prepare):
        settings["prepare"] = own.make(recipe.prepare, allowed)
    return Federation.from_frame(table_of(recipe), **settings)


def noisy(federation: Federation, steps: Sequence[NoiseStep], allowed: Allowed) -> Federation:
    """Return the federation with its label noise."""
    for step in steps:
        wrong = noise.read(step.noise, allowed)
        federation = federation.with_label_noise(wrong, step.seed, step.clients)
    return federation


def _dealt(dataset: Dataset, read: Recipe, allowed: Allowed) -> Federation:
    scheme = partition.read(read.partition, allowed)
    return dataset.split(scheme, read.clients, read.seed, read.fractions, read.official)
