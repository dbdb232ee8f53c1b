"""Does ``auto`` take the faster engine?"""

from __future__ import annotations

from collections.abc import Sequence

from contest import Contestant, Rounds, experiment, federation, turns
from report import Bar, Section, number
from workloads import WORKLOADS

from fedparity.engines.choice import ENGINES

SLOW = "cnn"
"""Its other engine leaves much memory behind, so it is the last."""


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time the engine that auto takes against the other one."""
    section = Section(
        "The choice of auto",
        "Milliseconds a round of FedAvg with the engine that `auto` takes and with the other one, "
        "in turns of their own.",
        ("workload", "auto takes", "auto", "other engine", "times as fast"),
    )
    for name in sorted(names, key=lambda name: name == SLOW):
        workload = WORKLOADS[name]
        data = federation(workload)
        choice = experiment(workload, data=data).choice
        (other,) = (engine for engine in ENGINES if engine not in ("auto", choice.name))
        runs = {e: Rounds(experiment(workload, data=data, engine=e)) for e in ("auto", other)}
        times = turns([Contestant(engine, run) for engine, run in runs.items()], repeats)
        for run in runs.values():
            run.close()
        ratio, took = times.ratio(other, "auto"), number(times.median("auto"))
        against = f"{other} {number(times.median(other))}"
        section.rows.append((name, choice.name, took, against, f"{number(ratio)}x"))
        section.notes.append(f"{name}: `auto` takes `{choice.name}` ({choice.reason}).")
        section.bars.append(Bar(f"{name}: auto as fast as {other}", ratio, 1.0, at_least=True))
    return section
