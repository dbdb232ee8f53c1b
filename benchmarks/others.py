"""Other simulators, each driven in a process and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

PEERS = ("flower", "flgo", "fedlab", "pfl", "fedjax")
ONE_PROCESS = ("flgo", "fedlab")
"""Those that compute in one process, for which one thread and two are tried."""
WORKLOADS = ("lin", "mlp", "cnn")
DRIVERS = Path(__file__).parent / "peers"
PATIENCE = 1200
"""Seconds a peer may take."""
NEVER = {("fedjax", "cnn")}
"""Minutes a round on a CPU."""

Found = dict[tuple[str, str], float]
"""Milliseconds a round by peer and workload."""


def published() -> Found:
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
        for name, value in zip(WORKLOADS, values, strict=True)
        if value
    }


def measure(folder: Path, names: Sequence[str], rounds: int) -> Iterator[tuple[str, str, str]]:
    """Time the peers whose environment exists; yield peer, workload and the answer or error."""
    for peer in PEERS:
        python = folder / peer / "bin" / "python"
        if not python.exists():
            continue
        for name in (n for n in names if n in WORKLOADS and (peer, n) not in NEVER):
            for threads in ("1", "2") if peer in ONE_PROCESS else ("1",):
                yield peer, name, _ask(python, peer, name, rounds, threads)


def _ask(python: Path, peer: str, name: str, rounds: int, threads: str) -> str:
    command = [str(python), str(DRIVERS / f"time_{peer}.py"), name, "--rounds", str(rounds)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**environment, "THREADS": threads},
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return lines[-1] if lines else (done.stderr.strip().splitlines() or ["no answer"])[-1]


def collect(folder: Path | None, names: Sequence[str], rounds: int) -> tuple[Found, list[str]]:
    """Return the best time of every peer, and what was said by each."""
    found: Found = {}
    said = []
    for peer, name, told in measure(folder, names, rounds) if folder else ():
        said.append(f"{peer} {name}: {told}")
        if told.startswith("{"):
            ms = float(json.loads(told)["ms"])
            found[peer, name] = min(ms, found.get((peer, name), ms))
    return found, said
