"""Per-client numbers of every evaluation, as one long table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.records.checksums import sha256, sync

COLUMNS = ("round", "client", "split", "model", "metric", "value", "n")
RUN = "run"
"""In place of a split: a number of the run, not of a client."""


ROUND = "round"
"""Stands for the split in rows of what was told in a round, where nobody was evaluated."""
SERVER = "server"
"""Stands for the model in the rows of the aggregation weights."""
Sizes = npt.NDArray[np.int64]
Tellings = Mapping[tuple[str, str], npt.NDArray[np.float64]]


class Added(NamedTuple):
    """One number a client, as it was added."""

    round: int
    client: npt.NDArray[np.object_]
    split: str
    model: str
    metric: str
    value: npt.NDArray[np.float64]
    n: npt.NDArray[np.int64]


class History:
    """Rows ``round, client, split, model, metric, value, n``.

    Rows are appended in blocks, and become a table when one is wanted: many small tables cost more
    than what is in them. :meth:`flush` writes what is new as a piece of its own, so that a long run
    never writes a row twice; :meth:`restore` reads the pieces back. ``chain`` is one checksum of
    all pieces.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = np.asarray(names, dtype=object)
        self.chain = ""
        self._written: list[pd.DataFrame] = []
        self._unwritten: list[pd.DataFrame] = []
        self._added: list[Added] = []

    def add(
        self,
        round: int,
        split: str,
        model: str,
        values: dict[str, npt.NDArray[np.float64]],
        n: npt.NDArray[np.int64],
    ) -> None:
        """Append one number a client and metric; clients without an example have none."""
        seen = n > 0
        names, sizes = self.names[seen], n[seen]
        self._added += [
            Added(round, names, split, model, metric, value[seen], sizes)
            for metric, value in values.items()
        ]

    def note(self, round: int, metric: str, value: float) -> None:
        """Append a number of the whole run: its client is empty, its split ``run``."""
        nobody, count = np.asarray([""], dtype=object), np.asarray([len(self.names)])
        self._added.append(Added(round, nobody, RUN, "global", metric, np.asarray([value]), count))

    def tell(
        self, round: int, clients: npt.NDArray[np.int64], numbers: Tellings, sizes: Sizes
    ) -> None:
        """Append what a round said: of each client its weight and reports, and of the parts.

        ``numbers`` are by ``(who tells, what)``: one a client, or a single one of the server. Their
        rows have ``round`` for the split and who tells for the model.
        """
        names, n = self.names[clients], sizes[clients]
        nobody, none = np.asarray([""], dtype=object), np.zeros(1, np.int64)
        for (who, what), value in numbers.items():
            if value.ndim:
                self._added.append(Added(round, names, ROUND, who, what, value, n))
            else:
                self._added.append(Added(round, nobody, ROUND, who, what, value[None], none))

    def table(self) -> pd.DataFrame:
        """Return all rows."""
        self._gather()
        blocks = [*self._written, *self._unwritten]
        if not blocks:
            return pd.DataFrame(columns=list(COLUMNS))
        return pd.concat(blocks, ignore_index=True)

    def _gather(self) -> None:
        """Make one table of what was added since the last."""
        if not self._added:
            return
        lengths = [len(block.n) for block in self._added]
        columns = {}
        for name, values in zip(COLUMNS, zip(*self._added, strict=True), strict=True):
            if isinstance(values[0], np.ndarray):
                columns[name] = np.concatenate(values)
            else:
                kind = np.int64 if name == "round" else np.object_
                columns[name] = np.repeat(np.asarray(values, dtype=kind), lengths)
        self._unwritten.append(pd.DataFrame(columns))
        self._added = []

    def flush(self, folder: Path, round: int) -> None:
        """Write the rows added since the last flush as ``<round>.parquet``."""
        self._gather()
        if not self._unwritten:
            return
        folder.mkdir(exist_ok=True)
        piece = pd.concat(self._unwritten, ignore_index=True)
        beside = folder / f"{round:09d}.part"
        piece.to_parquet(beside, index=False)
        sync(beside)
        self.chain = _link(self.chain, beside)
        beside.replace(folder / f"{round:09d}.parquet")
        self._written.append(piece)
        self._unwritten = []

    def restore(self, folder: Path, round: int) -> None:
        """Read the pieces up to a round; later ones, whose checkpoint never was, are removed."""
        pieces, later = _pieces(folder, round)
        for file in later:
            file.unlink()
        self.chain = chain(folder, round)
        self._written = [_kept(pd.read_parquet(file), round) for file in pieces]
        self._unwritten, self._added = [], []

    def take(self, table: pd.DataFrame, round: int) -> None:
        """Take the rows of a finished run up to a round; they will be written as a new piece."""
        self.chain = ""
        self._written, self._unwritten, self._added = [], [_kept(table, round)], []


def chain(folder: Path, round: int) -> str:
    """Return one checksum of the pieces in a folder up to a round."""
    found = ""
    for file in _pieces(folder, round)[0]:
        found = _link(found, file)
    return found


def _link(chain: str, file: Path) -> str:
    return hashlib.sha256((chain + sha256(file)).encode()).hexdigest()


def _pieces(folder: Path, round: int) -> tuple[list[Path], list[Path]]:
    """Return the pieces up to a round, and the later ones."""
    upto = f"{round:09d}.parquet"
    files = sorted(folder.glob("*.parquet"))
    return [f for f in files if f.name <= upto], [f for f in files if f.name > upto]


def _kept(rows: pd.DataFrame, round: int) -> pd.DataFrame:
    """Return the rows up to a round; those of the training split come at the end alone."""
    return rows[(rows["round"] <= round) & (rows["split"] != "train")]
