"""Runs of a study on a Ray cluster (``fedparity[ray]``), whose machines share a file system."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fedparity import workers
from fedparity.errors import InputError
from fedparity.studies.pool import GRACE, Message
from fedparity.studies.work import Order, Outcome, perform

MISSING = "--on ray needs Ray: pip install 'fedparity[ray]'"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0, when Ray is imported, it listens on this machine's loopback alone, on any system."""


class Cluster:
    """Workers by number, each of them a task of Ray on one core of the cluster.

    It has the methods of :class:`fedparity.studies.pool.Pool`. An order and what became of it
    travel as JSON; what a run writes, its machine writes into the study's directory.

    Parameters
    ----------
    size
        How many at once; None: one a core of the cluster.
    most
        Not more than this.
    """

    def __init__(self, size: int | None, most: int) -> None:
        self._ray, self._started = _joined()
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.size = max(1, min(size or cores, most))
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_done)
        self._given: dict[Any, int] = {}
        self._lost: dict[int, str] = {}

    def give(self, worker: int, order: Order) -> None:
        """Let a worker do a run."""
        self._given[self._task.remote(order.written(), os.getcwd())] = worker

    def wait(self) -> Message:
        """Return what became of a run as soon as one has ended."""
        (ended, *_), _ = self._ray.wait(list(self._given), num_returns=1)
        worker = self._given.pop(ended)
        try:
            return Message(worker, json.loads(self._ray.get(ended)))
        except self._ray.exceptions.RayError as error:
            self._lost[worker] = " ".join(str(error).split())[:500]
            return Message(worker, None)

    def lost(self, worker: int) -> Outcome:
        """Return what became of the run of a worker that the cluster has lost."""
        return Outcome("failed", f"Ray lost it: {self._lost.pop(worker)}")

    def close(self, busy: Sequence[int] = ()) -> None:
        """End all runs; those that are busy write a last checkpoint first."""
        for task, worker in self._given.items():
            if worker in busy:
                self._ray.cancel(task)
        if self._given:
            self._ray.wait(list(self._given), num_returns=len(self._given), timeout=GRACE)
        if self._started:
            self._ray.shutdown()


def _joined() -> tuple[ModuleType, bool]:
    """Return Ray, and whether it was joined here: without RAY_ADDRESS one of this machine alone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # tells nobody of its use
    address = os.environ.get("RAY_ADDRESS", "local")
    if address == "local":
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError as error:
        raise InputError(MISSING) from error
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=address, log_to_driver=False)
    except ConnectionError as error:
        raise InputError(f"no Ray cluster at RAY_ADDRESS={address}: {error}") from error
    return ray, True


def _done(order: str, folder: str) -> str:
    """Do a run on a machine of the cluster: its paths are seen from the folder of who asks."""
    if Path(folder).is_dir():
        os.chdir(folder)
    os.environ[workers.CORES] = "1"
    outcome = perform(Order.read(order))
    return json.dumps({"ended": outcome.state, "reason": outcome.reason})
