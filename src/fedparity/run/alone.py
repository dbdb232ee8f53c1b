"""What training each client alone leaves: its L*, the course of its loss, and its model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pyarrow.lib import ArrowException
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedparity.method.messages import Own

MOST_POINTS = 1 << 20
"""Losses kept of the courses of a group of clients; of more, every second round is left out."""
MOST_NUMBERS = 1 << 24
"""Parameters and buffers of all clients' models up to which they are kept."""
Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class Alone(NamedTuple):
    """What training each client alone leaves.

    ``table`` is L*, see :data:`fedparity.run.lstar.COLUMNS`. ``curves`` has the columns ``client``,
    ``round`` and ``loss``: the loss that decided when to stop. ``params`` ``[K, d]`` and
    ``buffers`` are the models behind L*, or None where they are too large to be kept.
    """

    table: pd.DataFrame
    curves: pd.DataFrame
    params: Tensor | None = None
    buffers: Tensor | None = None

    @property
    def own(self) -> Own | None:
        """The models as clients' own, or None."""
        if self.params is None or self.buffers is None:
            return None
        return Own(self.params, self.buffers)

    @classmethod
    def joined(cls, groups: list[Alone]) -> Alone:
        """Return the groups of clients as one."""
        table = pd.concat([group.table for group in groups], ignore_index=True)
        curves = pd.concat([group.curves for group in groups], ignore_index=True)
        models = [(g.params, g.buffers) for g in groups]
        params = [p for p, _ in models if p is not None]
        buffers = [b for _, b in models if b is not None]
        if sum(p.numel() for p in (*params, *buffers)) > MOST_NUMBERS:
            return cls(table, curves)
        return cls(table, curves, torch.cat(params), torch.cat(buffers))

    def keep(self, file: Path) -> None:
        """Write all beside the file of the table, which comes last: who finds it finds the rest."""
        with _placing(_curves(file)) as beside:
            self.curves.to_parquet(beside)
        if self.params is not None and self.buffers is not None:
            with _placing(_models(file)) as beside:
                save_file({"params": self.params, "buffers": self.buffers}, beside)
        with _placing(file) as beside:
            self.table.to_parquet(beside)

    @classmethod
    def beside(cls, table: pd.DataFrame, file: Path) -> Alone:
        """Return a table with what was kept beside its file; the rest is empty where it is gone."""
        try:
            curves = pd.read_parquet(_curves(file))
        except (ArrowException, OSError, ValueError):
            curves = Courses(()).table()
        try:
            found = load_file(_models(file))
        except (OSError, SafetensorError):
            return cls(table, curves)
        models = found.get("params"), found.get("buffers")
        whole = models[0] is not None and len(models[0]) == len(table)
        return cls(table, curves, *models) if whole else cls(table, curves)


class Courses:
    """The losses of clients, round after round."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.every, self.points = np.asarray(names, dtype=object), 1, 0
        self._added: list[tuple[int, Ids, Values]] = []

    def add(self, round: int, clients: Ids, losses: Values) -> None:
        """Append the losses of those who trained."""
        if round % self.every:
            return
        self._added.append((round, clients, losses))
        self.points += len(clients)
        while self.points > MOST_POINTS:
            self.every *= 2
            self._added = [each for each in self._added if each[0] % self.every == 0]
            self.points = sum(len(clients) for _, clients, _ in self._added)

    def table(self) -> pd.DataFrame:
        """Return one row a client and round."""
        rounds = np.asarray([round for round, _, _ in self._added], dtype=np.int64)
        lengths = [len(clients) for _, clients, _ in self._added]
        clients = np.concatenate([np.zeros(0, np.int64), *(c for _, c, _ in self._added)])
        losses = np.concatenate([np.zeros(0), *(values for _, _, values in self._added)])
        return pd.DataFrame(
            {"client": self.names[clients], "round": np.repeat(rounds, lengths), "loss": losses}
        )


@contextmanager
def _placing(file: Path) -> Iterator[Path]:
    """Give a path of this process's own to write to; several may keep the same at once."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.part")
    yield beside
    beside.replace(file)


def _curves(file: Path) -> Path:
    return file.with_name(f"{file.stem}.curves.parquet")


def _models(file: Path) -> Path:
    return file.with_name(f"{file.stem}.safetensors")
