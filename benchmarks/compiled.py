"""Whether ``torch.compile`` would make a step faster, and what it takes first."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch._inductor.config
from batched import Stacked
from contest import Contestant, experiment, turns
from report import Section, number
from workloads import WORKLOADS


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time the hand-written step as it is and compiled, in turns."""
    section = Section(
        "torch.compile",
        "Milliseconds of one hand-written step of all clients of a round, as it is and compiled, "
        "each with one thread inside an operation, and what compiling takes before the first. The "
        "engines do not compile.",
        ("workload", "as it is", "compiled", "seconds to compile"),
    )
    torch._inductor.config.force_disable_caches = True  # every user compiles once
    torch._inductor.config.compile_threads = 1
    for name in (n for n in names if n in ("lin", "mlp")):
        hand = Stacked(experiment(WORKLOADS[name]))
        first = hand.rows[:, 0], hand.weights[:, 0]
        torch._dynamo.reset()
        faster = torch.compile(hand._step)
        with torch.no_grad():
            hand._step(*first)
            began = time.perf_counter()
            try:
                faster(*first)
            except Exception as error:  # no compiler here
                section.notes.append(f"{name}: {str(error).splitlines()[0]}")
                continue
            took = time.perf_counter() - began
            times = turns(
                [
                    Contestant("as it is", lambda h=hand, f=first: h._step(*f)),
                    Contestant("compiled", lambda c=faster, f=first: c(*f)),
                ],
                repeats,
            )
        cells = (number(times.median("as it is")), number(times.median("compiled")), number(took))
        section.rows.append((name, *cells))
    return section
