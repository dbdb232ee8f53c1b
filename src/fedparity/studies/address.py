"""The address of a run: a digest of everything that its numbers depend on.

The same setting has the same address however it was written: names, defaults and the order of keys
make no difference. What only changes how a run goes (checkpoints, the size of a stack) is left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedparity.data import Dataset, Federation, datasets, noise, partition
from fedparity.data.recipe import Recipe
from fedparity.data.recipe import table_of as table_in
from fedparity.data.source import TableRecipe
from fedparity.imports import Allowed, look_up
from fedparity.learning import tasks
from fedparity.learning.models import resolve
from fedparity.learning.solver import Solver
from fedparity.recipes import complete
from fedparity.records.checksums import sha256
from fedparity.records.settings import recipe_of, table_of
from fedparity.run.conditions import Conditions, Stop
from fedparity.run.file import algorithm_of, check_keys, metrics_of, solver_of
from fedparity.run.given import is_file
from fedparity.run.sampling import read as read_sampling
from fedparity.spec import call, check_names, parse_one

VERSION = 1
"""Of what an address is made of."""
FREE = ("checkpoint_every", "chunk")
"""Conditions that change no number."""
ALONE = (
    *("data", "task", "model", "solver", "seed", "engine", "dtype", "trainable", "pretrained"),
    "unseen",
)
"""What L* depends on, besides its rule."""
LENGTH = 16
Settings = dict[str, Any]


class Addresses:
    """Finds the addresses of settings; a table is read once for all of them.

    Parameters
    ----------
    allowed
        The code that the settings may name.
    fingerprint
        Of the federation that was given in Python, where the settings name no data.
    """

    def __init__(self, allowed: Allowed, fingerprint: str | None = None) -> None:
        self.allowed, self.fingerprint = allowed, fingerprint
        self._digests: dict[str, Any] = {}

    def known(self, settings: Mapping[str, Any]) -> Settings:
        """Return the settings with the digest of the tables that they name."""
        if self.fingerprint is not None:
            return dict(settings)
        data = recipe_of(settings)
        if "table" not in data or data.get("sha256"):
            return dict(settings)
        key = json.dumps([data["table"], data.get("client")])
        if key not in self._digests:
            self._digests[key] = table_in(TableRecipe.read(data)).told
        given = settings["data"]
        told = dict(given) if isinstance(given, Mapping) else {"table": given}
        return {**settings, "data": {**told, "sha256": self._digests[key]}}

    def complete(self, settings: Mapping[str, Any]) -> Settings:
        """Return what the numbers depend on; what cannot be read is refused."""
        check_keys(settings)
        names = [f.name for f in dataclasses.fields(Conditions)]
        told = {name: settings[name] for name in names if name in settings}
        if "sampling" in told:
            told["sampling"] = read_sampling(told["sampling"], self.allowed).identity
        conditions = vars(call("experiment", Conditions, told))
        for name in ("lstar", "pretrained"):
            if is_file(conditions[name]) or (name == "pretrained" and conditions[name]):
                conditions = {**conditions, name: sha256(Path(conditions[name]).expanduser())}
        model = str(settings.get("model", ""))
        if model:
            resolve(model, self.allowed)
        more: Settings = {}
        if settings.get("task"):
            more["task"] = tasks.read(str(settings["task"]), model or "linear", self.allowed).text
        if settings.get("stop"):
            more["stop"] = _public(vars(call("stop", Stop, table_of(settings, "stop"))))
        if metrics := metrics_of(settings, self.allowed):
            more["metrics"] = [metric.text for metric in metrics]
        return {
            "data": self._data(settings),
            "model": str(parse_one(model)) if model else None,
            "algorithm": complete(algorithm_of(settings, self.allowed)),
            "solver": _unusual(vars(solver_of(settings)), vars(Solver())),
            **_unusual({k: v for k, v in conditions.items() if k not in FREE}, vars(Conditions())),
            **more,
        }

    def _data(self, settings: Mapping[str, Any]) -> Settings:
        if self.fingerprint is not None:
            return {"fingerprint": self.fingerprint}
        recipe = recipe_of(settings)
        if "table" in recipe:
            told = TableRecipe.read(recipe).told()
            return {key: value for key, value in told.items() if key != "table"}
        found = vars(call("data", Recipe, recipe))
        named = parse_one(found["dataset"])
        kinds = (Dataset, Federation)
        make = look_up("dataset", named, datasets.DATASETS, self.allowed, kinds)
        check_names(named.name, make, named.settings)
        partition.read(found["partition"], self.allowed)
        for step in found["noise"]:
            noise.read(step.noise, self.allowed)
        terms = {key: str(parse_one(str(found[key]))) for key in ("dataset", "partition")}
        return {**_public(found), **terms, "noise": list(map(vars, found["noise"]))}


def address(complete: Mapping[str, Any]) -> str:
    """Return the address of complete settings."""
    return digest({"version": VERSION, **complete})


def alone(complete: Mapping[str, Any]) -> str | None:
    """Return the address of the L* of complete settings; None where nobody trains alone."""
    rule = complete.get("lstar", Conditions().lstar)
    if rule == "none" or not isinstance(rule, str):
        return None
    return digest({key: complete.get(key) for key in (*ALONE, "lstar")})


def digest(told: Mapping[str, Any]) -> str:
    """Return a short digest of plain values, whatever the order of their keys."""
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _unusual(told: Mapping[str, Any], usual: Mapping[str, Any]) -> Settings:
    """Return what is not as always, so that a setting that is new changes no address."""
    return {key: value for key, value in _public(told).items() if value != usual[key]}


def _public(told: Mapping[str, Any]) -> Settings:
    return {key: value for key, value in told.items() if not key.startswith("_")}
