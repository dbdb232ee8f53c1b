"""Per-client numbers of every evaluation, as one long table."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

COLUMNS = ("round", "client", "split", "model", "metric", "value", "n")


class History:
    """Rows ``round, client, split, model, metric, value, n``.

    Rows are appended in blocks. :meth:`flush` writes what is new as a piece of its own, so that a
    long run never writes a row twice; :meth:`restore` reads the pieces back.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = np.asarray(names, dtype=object)
        self._old: list[pd.DataFrame] = []
        self._new: list[pd.DataFrame] = []

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
        for metric, value in values.items():
            self._new.append(
                pd.DataFrame(
                    {
                        "round": np.full(int(seen.sum()), round, dtype=np.int64),
                        "client": self.names[seen],
                        "split": split,
                        "model": model,
                        "metric": metric,
                        "value": value[seen],
                        "n": n[seen],
                    }
                )
            )

    def table(self) -> pd.DataFrame:
        """Return all rows."""
        blocks = [*self._old, *self._new]
        if not blocks:
            return pd.DataFrame(columns=list(COLUMNS))
        return pd.concat(blocks, ignore_index=True)

    def flush(self, folder: Path, round: int) -> None:
        """Write the rows added since the last flush as ``<round>.parquet``."""
        if not self._new:
            return
        folder.mkdir(exist_ok=True)
        piece = pd.concat(self._new, ignore_index=True)
        beside = folder / f"{round:09d}.part"
        piece.to_parquet(beside, index=False)
        beside.replace(folder / f"{round:09d}.parquet")
        self._old.append(piece)
        self._new = []

    def restore(self, folder: Path, whole: Path, round: int) -> None:
        """Read the rows up to a round: of a finished run from its table, else from the pieces.

        Losses on the training split are measured at the end alone, and will be again.
        """
        self._old, self._new = [], []
        finished = pd.read_parquet(whole) if whole.exists() else None
        if finished is not None and finished["round"].max() >= round:
            self._new = [_kept(finished, round)]
            shutil.rmtree(folder, ignore_errors=True)
            return
        for file in sorted(folder.glob("*.parquet")):
            if int(file.stem) > round:  # written just before a checkpoint that never was
                file.unlink()
            else:
                self._old.append(_kept(pd.read_parquet(file), round))


def _kept(rows: pd.DataFrame, round: int) -> pd.DataFrame:
    return rows[(rows["round"] <= round) & (rows["split"] != "train")]
