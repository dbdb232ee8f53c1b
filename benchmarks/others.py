"""Other simulators, each driven in a process and an environment of its own, in turns with ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contest import Contestant, Rounds, Times, experiment, turns_of
from report import number
from workloads import WORKLOADS

PEERS = ("flower", "flgo", "fedlab", "pfl", "fedjax")
ONE_PROCESS = ("flgo", "fedlab")
"""Those that compute in one process, for which one thread and two are tried."""
MEASURED = ("lin", "mlp", "cnn")
DRIVERS = Path(__file__).parent / "peers"
PATIENCE = 1200
"""Seconds a peer may take."""
MORE = 3
"""Times the repeats, for rounds of less than a second."""
NEVER = {("fedjax", "cnn")}
"""Minutes a round on a CPU."""
CALLS = {"lin": 15, "mlp": 2, "cnn": 1}
"""Rounds of ours in a turn."""


@dataclass(frozen=True)
class Peer:
    """Milliseconds a round of a peer, and how many times ours that is."""

    ms: float
    ratio: float

    def __str__(self) -> str:
        return f"{number(self.ms)} ({number(self.ratio)}x)"


Found = dict[tuple[str, str], Peer]
"""Times by peer and workload."""


class Silence(Exception):
    """A peer that did not answer; says why."""


def published() -> dict[tuple[str, str], int]:
    """Return figures (ms a round, two cores) that were published before this was written."""
    figures = {
        "flower": (796, 310, 4500),
        "flgo": (249, 113, 3680),
        "fedlab": (198, 109, 3350),
        "pfl": (143, 60, 3190),
        "fedjax": (42, 86, None),
    }
    return {
        (peer, name): value
        for peer, values in figures.items()
        for name, value in zip(MEASURED, values, strict=True)
        if value
    }


def collect(
    folder: Path, names: Sequence[str], repeats: int, say: Callable[[str], object] = print
) -> Found:
    """Return the best time of every peer whose environment exists; say each as it is known."""
    found: Found = {}
    for name in (n for n in names if n in MEASURED):
        wanted = turns_of(WORKLOADS[name], repeats, MORE)
        rounds = Rounds(experiment(WORKLOADS[name]))
        ours = Contestant("ours", rounds)
        ours.turn(2)
        for peer, threads in _entrants(folder, name):
            command = [str(folder / peer / "bin" / "python"), str(DRIVERS / f"time_{peer}.py")]
            command += [name, "--rounds", str(wanted), "--turns"]
            try:
                with Driver(command, threads) as driver:
                    setting, times = driver.told(), Times(theirs=[], ours=[])
                    for _ in range(wanted):  # theirs last: nobody waits at its end
                        times["ours"].append(ours.turn(CALLS[name]))
                        times["theirs"].append(driver.round())
            except Silence as why:
                say(f"{peer} {name}: {why}")
                continue
            one = Peer(times.median("theirs"), times.ratio("theirs", "ours"))
            say(f"{peer} {name}: {one} {json.dumps(setting)}")
            found[peer, name] = min(one, found.get((peer, name), one), key=lambda each: each.ratio)
        rounds.close()
    return found


def _entrants(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the peers that can do a workload, and the threads to try."""
    for peer in PEERS:
        if (folder / peer / "bin" / "python").exists() and (peer, name) not in NEVER:
            yield from ((peer, n) for n in (("1", "2") if peer in ONE_PROCESS else ("1",)))


class Driver:
    """A peer's process; between its rounds it waits, so that the machine is free for others."""

    def __init__(self, command: Sequence[str], threads: str = "1") -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the driver
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**environment, "THREADS": threads},
            start_new_session=True,
        )
        self._late = threading.Event()
        self._limit = threading.Timer(PATIENCE, self._give_up)
        self._limit.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        if error is None:
            self._process.communicate()  # lets it go to its end
        self._limit.cancel()
        self._end()
        self._process.communicate()
        self._errors.close()

    def told(self, key: str = "version") -> dict[str, object]:
        """Return the next line of JSON with a key that it prints."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict) and key in found:
                    return found
        if self._late.is_set():
            raise Silence(f"no answer in {PATIENCE} s")
        self._process.wait()
        self._errors.seek(0)
        raise Silence((self._errors.read().strip().splitlines() or ["no answer"])[-1])

    def round(self) -> float:
        """Let it do a round and return the milliseconds."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then it has no more to tell
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return float(str(self.told("ms")["ms"]))

    def _give_up(self) -> None:
        self._late.set()
        self._end()

    def _end(self) -> None:
        # What it started in sessions of their own ends when nothing more is asked.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
