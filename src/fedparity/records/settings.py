"""What the settings of an experiment name: its data and its task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedparity.data import Federation, rebuild
from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed
from fedparity.learning import tasks
from fedparity.learning.models import resolve
from fedparity.learning.task import Task


def federation_of(
    settings: Mapping[str, Any], data_dir: str | Path | None = None, allowed: Allowed = NOTHING
) -> Federation:
    """Return the federation that the ``data`` of an experiment's settings describes.

    ``allowed`` is the code that the settings may name.
    """
    return rebuild(recipe_of(settings), data_dir, allowed)


def recipe_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the federation of an experiment's settings is made, with what goes unsaid."""
    data = settings.get("data")
    if not data:
        raise InputError(
            "the experiment names no data: give a dataset (--data digits, or 'data: digits' in the "
            "file), or in Python the federation itself"
        )
    given = {"dataset": data} if isinstance(data, str) else table_of(settings, "data")
    recipe: dict[str, Any] = {"partition": "natural", "seed": settings.get("seed", 0), **given}
    noise = recipe.get("noise") or ()
    if isinstance(noise, str | Mapping):
        noise = (noise,)
    recipe["noise"] = [
        {"noise": step, "seed": recipe["seed"]} if isinstance(step, str) else step for step in noise
    ]
    return recipe


def task_of(settings: Mapping[str, Any], kind: str, allowed: Allowed) -> Task:
    """Return the task; what is not named follows from the kind of the data.

    ``allowed`` is the code that the settings may name.
    """
    if "model" not in settings:
        raise InputError(
            "the experiment names no model: give one (--model linear, or 'model: linear' in the "
            "file)"
        )
    model = str(settings["model"])
    resolve(model, allowed)  # refuses what a task, made in Python, takes
    named = settings["task"] if "task" in settings else tasks.usual(kind)
    return tasks.read(str(named), model, allowed)


def table_of(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a setting that has settings inside."""
    found = settings.get(key) or {}
    if not isinstance(found, Mapping):
        raise InputError(f"'{key}' must be a table of settings, got {found!r}")
    return {str(name): value for name, value in found.items()}
