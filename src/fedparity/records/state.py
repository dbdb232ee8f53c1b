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

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedparity.errors import DamagedError, InputError
from fedparity.method.messages import Named, Server
from fedparity.records.checksums import Checksums, sync

SCHEMA = 3
NUMBERS = frozenset(
    {"round", "best_value", "best_round", "stop_value", "patience", "empty", "identity"}
)
"""What every ``state.json`` holds."""


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
    sampling: dict[str, Tensor] = field(default_factory=dict)
    """What the drawing of cohorts remembers."""
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
        tensors |= {f"sampling/{key}": value for key, value in self.sampling.items()}
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
        sampling = {
            name.removeprefix("sampling/"): value
            for name, value in tensors.items()
            if name.startswith("sampling/")
        }
        mine = {"x": self.server.x, "buffers": self.server.buffers, "answered": self.answered}
        shapes = {key: tensors[key].shape for key in mine if key in tensors}
        if (
            _shapes(parts) != _shapes(self.server.parts)
            or _shapes({"sampling": sampling}) != _shapes({"sampling": self.sampling})
            or shapes != {key: value.shape for key, value in mine.items()}
        ):
            raise InputError(f"cannot resume {folder.parent}: its state has another schema")
        self.server = Server(tensors["x"], tensors["buffers"], parts)
        self.store.restore(tensors)
        self.answered, self.sampling = tensors["answered"], sampling
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
