"""What a client remembers between rounds, and how a lost reply does not harm it.

A client cannot know whether its reply arrived. So the state it would have after a round is kept
beside the one before, and the next message tells which of the two the server counts on: the last
round whose reply it received. Nothing is thrown away before the server has moved on, so also a
server that goes back to its last checkpoint finds its clients as they were.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedparity.errors import FedparityError
from fedparity.flower import codec
from fedparity.flower.codec import BadMessage, Flat, Stamp
from fedparity.run.lstar_cache import cache_dir

ARRAYS, ABOUT = "fedparity.state", "fedparity.about"
MOST_LATER = 2
"""States of later rounds that are kept: the one before the newest, and the newest."""
KEPT_RUNS = 5
"""Runs whose state a site keeps on disk; those before are forgotten."""


class Forgotten(FedparityError):
    """The server counts on a state that this client does not have."""


def folder_of(client: str, state_dir: object = None) -> Path:
    """Return where a client's state is kept on disk."""
    parent = Path(str(state_dir)) if state_dir else cache_dir() / "flower"
    return parent / f"client-{quote(client, safe='')}"


class Memory:
    """The states of one client in one run, by the round after which it has them.

    Parameters
    ----------
    run
        The run's name.
    context
        Flower's state of the run on this node: gone when the node or the run starts again.
    folder
        Its mirror on disk.
    """

    def __init__(self, run: str, context: RecordDict, folder: Path) -> None:
        if not re.fullmatch("[0-9a-f]{32}", run):
            raise BadMessage("its run has no proper name")
        self.run, self.context = run, context
        self.file = folder / f"{run}.safetensors"
        self.states = self._from_context() or self._from_disk()

    def recall(self, stamp: Stamp, fresh: Flat) -> Flat:
        """Return the state after the last round whose reply the server received."""
        if stamp.received == 0:
            return fresh
        if stamp.received not in self.states:  # another process of this client may have been ahead
            self.states = {**self._from_disk(), **self.states}
        if stamp.received not in self.states:
            raise Forgotten(
                f"its state after round {stamp.received} is lost: it is neither in the memory of "
                f"the node nor in {self.file.parent}"
            )
        found = self.states[stamp.received]
        if {k: codec.Like.of(v) for k, v in found.items()} != {
            k: codec.Like.of(v) for k, v in fresh.items()
        }:
            raise Forgotten(f"its state after round {stamp.received} is of another algorithm")
        return found

    def keep(self, stamp: Stamp, round: int, before: Flat, after: Flat) -> None:
        """Keep the state that a round started from, and the one it would lead to.

        Later states stay: the message may be an old one that arrived again.
        """
        later = {r: state for r, state in self.states.items() if r > round}
        self.states = {stamp.received: before} if stamp.received else {}
        self.states |= {round: after, **dict(sorted(later.items())[-MOST_LATER:])}
        flat = {f"{r}/{name}": value for r, s in self.states.items() for name, value in s.items()}
        self.context[ARRAYS] = codec.pack(flat)
        self.context[ABOUT] = ConfigRecord({"run": self.run})
        self._to_disk(flat)

    def _from_context(self) -> dict[int, Flat]:
        about, arrays = self.context.get(ABOUT), self.context.get(ARRAYS)
        if not isinstance(about, ConfigRecord) or about.get("run") != self.run:
            return {}
        return _by_round(codec.unpack(arrays)) if isinstance(arrays, ArrayRecord) else {}

    def _from_disk(self) -> dict[int, Flat]:
        if not self.file.exists():
            return {}
        try:
            with safe_open(self.file, framework="pt") as stored:
                return _by_round({name: stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118
        except (OSError, ValueError, SafetensorError) as error:
            raise Forgotten(f"its state in {self.file} cannot be read: {error}") from error

    def _to_disk(self, tensors: Flat) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        beside = self.file.with_suffix(f".{os.getpid()}")
        save_file({name: value.contiguous().clone() for name, value in tensors.items()}, beside)
        with beside.open("r+b") as handle:
            os.fsync(handle.fileno())
        beside.replace(self.file)
        runs = sorted(self.file.parent.glob("*.safetensors"), key=lambda f: f.stat().st_mtime)
        for old in runs[:-KEPT_RUNS]:
            old.unlink(missing_ok=True)


def _by_round(tensors: Flat) -> dict[int, Flat]:
    found: dict[int, Flat] = {}
    for name, value in tensors.items():
        round, _, key = name.partition("/")
        found.setdefault(int(round), {})[key] = value
    return found
