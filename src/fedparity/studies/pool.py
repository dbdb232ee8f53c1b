"""Processes that do runs side by side, each with its share of the cores."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedparity import workers
from fedparity.studies.work import Order, Outcome

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", workers.CORES)
GRACE = 20.0
"""Seconds that an interrupted run has for its last checkpoint."""
COMMAND = (sys.executable, "-c")
START = "import sys; sys.path[:] = {path!r}; from fedparity.studies.worker import main; main()"
"""What a worker's process runs: with this process's path, and not the current directory's code."""


class Message(NamedTuple):
    """What a worker tells; None where its process has ended."""

    worker: int
    news: dict[str, Any] | None


class Pool:
    """Workers by number, and one queue of their news.

    Parameters
    ----------
    size
        How many.
    logs
        A folder for what their processes print.
    """

    def __init__(self, size: int, logs: Path) -> None:
        self.size, self.logs = size, logs
        self._news: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._workers: dict[int, subprocess.Popen[str]] = {}
        self._listeners: dict[int, threading.Thread] = {}

    def give(self, worker: int, order: Order) -> None:
        """Let a worker do a run; its process is started if there is none."""
        process = self._workers.get(worker) or self._start(worker)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which it tells by itself
            process.stdin.write(order.written() + "\n")
            process.stdin.flush()

    def _start(self, worker: int) -> subprocess.Popen[str]:
        share = str(max(1, workers.cores() // self.size))
        environment = {**os.environ, **dict.fromkeys(THREADS, share)}
        start = START.format(path=[path for path in sys.path if path])
        with self._log(worker).open("wb") as log:
            process = subprocess.Popen(
                (*COMMAND, start),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for whoever waits, who tells the workers
            )
        self._workers[worker] = process
        listener = threading.Thread(target=self._listen, args=(worker, process), daemon=True)
        self._listeners[worker] = listener
        listener.start()
        return process

    def _listen(self, worker: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            with process.stdout, suppress(ValueError):  # a line cut short: its process was killed
                for line in process.stdout:
                    self._news.put(Message(worker, json.loads(line)))
        finally:
            process.wait()
            self._news.put(Message(worker, None))

    def wait(self) -> Message:
        """Return the next news of any worker."""
        return self._news.get()

    def lost(self, worker: int) -> Outcome:
        """Return what became of the run of a worker whose process has ended; it may be replaced."""
        process = self._workers[worker]
        code = process.returncode
        self._forget(worker)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        said = self._log(worker).read_text(encoding="utf-8", errors="replace").strip()
        last = said.splitlines()[-1][:500] if said else "it said nothing"
        return Outcome("failed", f"its process ended with {how}: {last}")

    def _log(self, worker: int) -> Path:
        return self.logs / f"worker-{worker}.log"

    def close(self, busy: Sequence[int] = ()) -> None:
        """End all processes; the busy ones write a last checkpoint first."""
        for worker, process in self._workers.items():
            if worker in busy:
                _interrupt(process)
            _end_orders(process)
        for process in self._workers.values():
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for worker in list(self._workers):
            self._forget(worker)

    def _forget(self, worker: int) -> None:
        """Close what leads to a process that has ended."""
        _end_orders(self._workers.pop(worker))
        self._listeners.pop(worker).join()


def _end_orders(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Let a run stop after its round; where there are no such signals, at once."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.terminate()
        else:
            process.send_signal(signal.SIGINT)
