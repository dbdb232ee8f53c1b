"""All state of a run: one named tree of tensors, and its checkpoint on disk.

A checkpoint is a folder with ``state.safetensors``, ``state.json`` and their checksums, written
beside the old one and renamed, so that a run killed at any moment finds a whole one. The one before
is kept, for the case that the newest is damaged.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedparity.core.algorithm import Algorithm, Server
from fedparity.core.checksums import Checksums, sync
from fedparity.core.client import Named
from fedparity.core.layout import Layout
from fedparity.engines.setup import Ids
from fedparity.errors import DamagedError, FedparityError, InputError

SCHEMA = 3
NUMBERS = frozenset(
    {"round", "best_value", "best_round", "stop_value", "patience", "empty", "identity"}
)
"""What every ``state.json`` holds."""


class ClientStore:
    """What each client keeps between rounds, created at first contact.

    Tensors of all clients met so far are rows of one slab a name, so that gathering a cohort is one
    indexing operation and memory grows with the clients met, not with the population.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        layout: Layout,
        x: Tensor,
        buffers: Tensor,
        population: int,
        local_buffers: bool = False,
    ) -> None:
        made: Named = {
            p.name: dict(p.init_client(x, layout)) for p in algorithm.having("init_client")
        }
        if local_buffers and len(buffers):
            made["buffers"] = {"b": buffers}
        self.fresh: Named = {part: tensors for part, tensors in made.items() if tensors}
        self.row = np.full(population if self.fresh else 0, -1, dtype=np.int64)
        self.met = 0
        self.slabs: Named = {
            part: {key: value.new_zeros((0, *value.shape)) for key, value in tensors.items()}
            for part, tensors in self.fresh.items()
        }

    def gather(self, clients: Ids) -> Named:
        """Return the state of these clients, stacked; a client never met has the initial one."""
        if not self.fresh:
            return {}
        rows = torch.from_numpy(self.row[clients])
        known = rows >= 0
        result: Named = {}
        for part, tensors in self.fresh.items():
            result[part] = {}
            for key, value in tensors.items():
                out = value.expand(len(clients), *value.shape).clone()
                out[known] = self.slabs[part][key][rows[known]]
                result[part][key] = out
        return result

    def scatter(self, clients: Ids, states: Named) -> None:
        """Keep the new state of these clients."""
        for part, kept in states.items():
            made = self.fresh.get(part, {})
            if kept.keys() != made.keys():
                raise FedparityError(
                    f"part '{part}' keeps {sorted(kept)} on clients, but its init_client makes "
                    f"{sorted(made)}: the names must be the same"
                )
        if not self.fresh:
            return
        new = clients[self.row[clients] < 0]
        self.row[new] = np.arange(self.met, self.met + len(new))
        self.met += len(new)
        rows = torch.from_numpy(self.row[clients])
        for part, tensors in self.slabs.items():
            for key, slab in tensors.items():
                if self.met > len(slab):
                    room = min(len(self.row), max(self.met, 2 * len(slab)))
                    slab = torch.cat([slab, slab.new_zeros((room - len(slab), *slab.shape[1:]))])
                    tensors[key] = slab
                if part in states:
                    slab[rows] = states[part][key].to(slab.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of the clients met, by flat names."""
        if not self.met:
            return {}
        flat = {
            f"client/{part}/{key}": slab[: self.met].contiguous()
            for part, tensors in self.slabs.items()
            for key, slab in tensors.items()
        }
        met = np.flatnonzero(self.row >= 0)
        ordered = met[np.argsort(self.row[met])]
        return {**flat, "client": torch.from_numpy(ordered)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the state of :meth:`tensors`."""
        if "client" not in tensors:
            return
        clients = tensors["client"].numpy()
        states: Named = {
            part: {key: tensors[f"client/{part}/{key}"] for key in slabs}
            for part, slabs in self.slabs.items()
        }
        self.scatter(clients, states)


class Kept(Protocol):
    """What a run keeps of its clients: their state, or where it stands with them."""

    def tensors(self) -> dict[str, Tensor]:
        """Return it by flat names, for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the state of :meth:`tensors`."""


@dataclass
class RunState:
    """Where a run stands after a round."""

    round: int
    server: Server
    store: Kept
    best_value: float | None = None
    best_x: Tensor | None = None
    best_buffers: Tensor | None = None
    best_round: int = 0
    stop_value: float | None = None
    patience: int = 0
    """Evaluations since the metric of early stopping last improved."""
    empty: int = 0
    """Rounds without enough replies."""
    answered: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Rounds in which each client had a part, ``[K]``."""
    identity: dict[str, Any] = field(default_factory=dict)
    """What a resume must agree with: algorithm, data, schema."""

    def save(self, folder: Path, **more: Any) -> None:
        """Write the checkpoint beside the last one, which is kept, and rename it.

        ``more`` is kept in ``state.json``; see :func:`read_numbers`.
        """
        beside = folder.with_name(folder.name + ".new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        tensors = {"x": self.server.x, "buffers": self.server.buffers, **self.store.tensors()}
        tensors["answered"] = self.answered
        for part, state in self.server.parts.items():
            tensors |= {f"server/{part}/{key}": value for key, value in state.items()}
        if self.best_x is not None and self.best_buffers is not None:
            tensors |= {"best/x": self.best_x, "best/buffers": self.best_buffers}
        whole = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
        save_file(whole, beside / "state.safetensors")
        numbers = {
            "round": self.round,
            "best_value": self.best_value,
            "best_round": self.best_round,
            "stop_value": self.stop_value,
            "patience": self.patience,
            "empty": self.empty,
            "identity": self.identity,
            **more,
        }
        (beside / "state.json").write_text(json.dumps(numbers, indent=1))
        files = list(beside.iterdir())
        for file in files:
            sync(file)
        Checksums(beside).take(files)
        if folder.exists():
            shutil.rmtree(_before(folder), ignore_errors=True)
            folder.rename(_before(folder))
        beside.rename(folder)

    def load(self, folder: Path) -> None:
        """Take the state of a checkpoint, refusing one that belongs to another experiment."""
        numbers = read_numbers(folder)
        try:
            tensors = load_file(folder / "state.safetensors")
        except (OSError, SafetensorError) as error:
            raise DamagedError(f"{folder / 'state.safetensors'} cannot be read: {error}") from error
        for key, mine in self.identity.items():
            theirs = numbers["identity"].get(key)
            if theirs != mine:
                raise InputError(
                    f"cannot resume {folder.parent}: its {key} is {theirs!r}, here it is {mine!r}"
                )
        parts: Named = {}
        for name, value in tensors.items():
            if name.startswith("server/"):
                _, part, key = name.split("/", 2)
                parts.setdefault(part, {})[key] = value
        mine = {"x": self.server.x, "buffers": self.server.buffers, "answered": self.answered}
        shapes = {key: tensors[key].shape for key in mine if key in tensors}
        if _shapes(parts) != _shapes(self.server.parts) or shapes != {
            key: value.shape for key, value in mine.items()
        }:
            raise InputError(f"cannot resume {folder.parent}: its state has another schema")
        self.server = Server(tensors["x"], tensors["buffers"], parts)
        self.store.restore(tensors)
        self.answered = tensors["answered"]
        self.round, self.patience = numbers["round"], numbers["patience"]
        self.best_value, self.best_round = numbers["best_value"], numbers["best_round"]
        self.stop_value, self.empty = numbers["stop_value"], numbers["empty"]
        self.best_x, self.best_buffers = tensors.get("best/x"), tensors.get("best/buffers")


def read_numbers(folder: Path) -> dict[str, Any]:
    """Return what the ``state.json`` of a checkpoint holds; a damaged checkpoint is refused."""
    checksums, file = Checksums(folder), folder / "state.json"
    checksums.known()
    checksums.verify(folder / "state.safetensors")
    checksums.verify(file)
    try:
        numbers: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise DamagedError(f"{file} is damaged: {error}") from error
    missing = sorted(NUMBERS - set(numbers)) if isinstance(numbers, dict) else sorted(NUMBERS)
    if missing:
        raise DamagedError(f"{file} is damaged: it has no {missing[0]!r}")
    return numbers


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints there are, the newest first."""
    return [found for found in (folder, _before(folder)) if found.exists()]


def drop_newest(folder: Path) -> None:
    """Remove the newest of two checkpoints: the one before takes its place."""
    shutil.rmtree(folder)
    _before(folder).rename(folder)


def _before(folder: Path) -> Path:
    """Return where the checkpoint before the newest stands."""
    return folder.with_name(folder.name + ".old")


def _shapes(parts: Named) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {
        f"{part}/{key}": (value.shape, value.dtype)
        for part, state in parts.items()
        for key, value in state.items()
    }
