"""Peak memory, measured in a process of its own.

    python benchmarks/memory.py device POPULATION
    python benchmarks/memory.py fedfv CLIENTS PARAMETERS
    python benchmarks/memory.py model CLIENTS MODEL

Prints one line of JSON. Bytes are resident memory above what imports take.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import torch

import fedparity as fp
from fedparity.engines.engine import intraop
from fedparity.learning.layout import Layout
from fedparity.method import Context
from fedparity.parts import FedFV


def peak() -> int:
    """Return the most bytes that were resident so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # Of this program alone: the kernel's other number survives from the one that started it.
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident() -> int:
    """Return the bytes that are resident now."""
    return int(psutil.Process().memory_info().rss)


def device(population: int) -> dict[str, float]:
    """Build the device workload with this population and run some rounds."""
    from contest import Rounds, experiment
    from workloads import WORKLOADS

    workload = replace(WORKLOADS["device"], clients=population)
    before = resident()
    x, y, client = workload.arrays()
    began = time.perf_counter()
    split = np.full(len(y), "train")
    data = fp.Federation.from_arrays(x, y, client, split, outputs=workload.outputs)
    rounds = Rounds(experiment(workload, data=data))
    seconds = time.perf_counter() - began
    del x, y, client, split
    for _ in range(20):
        rounds()
    return {
        "seconds": seconds,
        "data": data.train.x.nbytes + data.train.y.nbytes,
        "model": 4 * population * rounds.run.experiment.setup.layout.size,
        "resident": resident() - before,
        "peak": peak() - before,
    }


def fedfv(clients: int, parameters: int) -> dict[str, float]:
    """Combine random updates of one round, remembered, and by the clock those of the next.

    The second round's clients are others, so that none of the remembered updates is passed over.
    A run has one thread inside an operation.
    """
    part = FedFV()
    module = torch.nn.Linear(parameters, 1, bias=False)
    before = resident()
    generator = torch.Generator().manual_seed(0)
    x, ids = torch.zeros(parameters), torch.arange(clients)
    context = Context(
        round=1,
        population=2 * clients,
        sizes=torch.ones(2 * clients, dtype=torch.int64),
        clients=ids,
        prior=torch.full((clients,), 1 / clients),
        steps=ids,
        lr=0.1,
        x=x,
        layout=Layout(module),
        cohort=clients,
        parts=(part,),
    )
    state = dict(part.init_server(x, context))
    report = {"loss": torch.rand(clients, generator=generator)}
    for number in (1, 2):
        now = replace(context, round=number, clients=ids + (number - 1) * clients)
        updates = torch.randn(clients, parameters, generator=generator)
        began = time.perf_counter()
        _, state = part.combine(updates, context.prior, report, state, now)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "matrix": updates.nbytes, "peak": peak() - before}


def model(clients: int, text: str) -> dict[str, float]:
    """Run a round of so many clients of a model on images of 3 x 32 x 32."""
    from contest import Rounds, experiment
    from workloads import Workload

    work = Workload(text, clients, clients, 10, (3, 32, 32), 1, 10, text, text)
    before = resident()
    rounds = Rounds(experiment(work))
    rounds()
    rounds.close()
    size = rounds.run.experiment.setup.layout.size
    return {"model": 4 * size, "peak": peak() - before}


def ask(*words: object) -> dict[str, float]:
    """Measure in a new process."""
    command = [sys.executable, __file__, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    given = [int(word) if word.isdecimal() else word for word in words]
    with intraop(1):
        measured = {"device": device, "fedfv": fedfv, "model": model}[kind](*given)
    print(json.dumps(measured))
