"""What the server and every site must agree on before the first round."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedparity.flower import Settings
from fedparity.flower.codec import shown
from fedparity.imports import Allowed
from fedparity.learning.task import Task
from fedparity.recipes import complete
from fedparity.records.rundir import RunDir, read_yaml
from fedparity.run.conditions import Conditions
from fedparity.run.file import algorithm_of, check_keys, solver_of
from fedparity.run.given import digest as lstar_digest
from fedparity.spec import call

ON_CLIENTS = ("seed", "dtype", "buffers", "trainable")
"""Conditions that a client's own numbers depend on, beside its L*."""


def settings_of(experiment: Settings) -> dict[str, Any]:
    """Return the settings of an experiment file, of a run directory, or as they are."""
    if isinstance(experiment, Mapping):
        found = dict(experiment)
    else:
        path = Path(experiment)
        found = RunDir(path).settings() if path.is_dir() else read_yaml(path)
    check_keys(found)
    return found


def conditions_of(settings: Mapping[str, Any]) -> Conditions:
    """Return the conditions of an experiment's settings."""
    names = {f.name for f in dataclasses.fields(Conditions)}
    return call("experiment", Conditions, {k: v for k, v in settings.items() if k in names})


def agreed(settings: Mapping[str, Any], task: Task | None, allowed: Allowed) -> dict[str, str]:
    """Return, as texts, the settings and versions that both sides must have alike.

    ``allowed`` is the code that the settings may name; what the other side says is only compared.
    """
    conditions, solver = conditions_of(settings), solver_of(settings)
    if task is None:
        named = {"task": settings.get("task", "by the data"), "model": settings.get("model")}
    else:
        named = {"task": task.text, "model": task.model_text or "given in Python"}
    told = {
        "algorithm": complete(algorithm_of(settings, allowed)),
        **named,
        "solver": json.dumps({f.name: getattr(solver, f.name) for f in dataclasses.fields(solver)}),
        **{name: getattr(conditions, name) for name in ON_CLIENTS},
        "lstar": lstar_digest(conditions.lstar),
        "metrics": json.dumps(settings.get("metrics") or []),
        "fedparity": version("fedparity"),
        "torch": torch.__version__.partition("+")[0],
    }
    return {key: str(value) for key, value in told.items()}


def digest(settings: Mapping[str, str]) -> str:
    """Return a short text that differs where what was agreed on differs."""
    told = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def difference(theirs: Mapping[str, str], mine: Mapping[str, str]) -> str | None:
    """Return in which setting or version a site differs from the server, or None."""
    for key in dict.fromkeys([*mine, *theirs]):
        if theirs.get(key) != mine.get(key):
            told = shown(theirs.get(key)), shown(mine.get(key))
            return f"its {key[:80]} is {told[0]}, the server's is {told[1]}"
    return None


def blueprint(module: nn.Module) -> str:
    """Return a digest of how a module is built, and of its parameters that are not trained."""
    found = hashlib.sha256(repr(module).encode())
    for parameter in module.parameters():
        if not parameter.requires_grad:
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]
