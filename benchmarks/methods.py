"""What methods cost on top of FedAvg, whose mathematics needs no extra pass over data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain
from operator import sub
from typing import Literal

import memory
from contest import Contestant, Rounds, experiment, federation, turns
from pydantic.dataclasses import dataclass
from report import Bar, Section, number
from workloads import WORKLOADS

from fedparity.core.part import STRICT, Fact, Part

METHODS: dict[str, Literal["loss", "validation_loss"] | None] = {
    "qffl": "loss",
    "afl": "loss",
    "eagle": "validation_loss",
    "fedfv": "loss",
    "fedeba(signal=pre)": "loss",
    "momentum": None,
}
"""Methods, and the loss each asks clients for."""
COST = 1.15
MORE = {"lin": 60, "mlp": 20}
"""Times the repeats of other sections, a round each: what is compared differs by little."""
CLIENTS, PARAMETERS = 100, 1_000_000
SECONDS, MATRICES = 2.0, 3.0


@dataclass(frozen=True, config=STRICT)
class Asks(Part):
    """FedAvg that asks for a loss and makes nothing of it."""

    fact: Literal["loss", "validation_loss"] = "loss"

    name = "asks"

    @property
    def reads(self) -> frozenset[Fact]:
        return frozenset({self.fact})


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time the methods against FedAvg that asks for the same loss, in turns."""
    section = Section(
        "Methods",
        "Milliseconds a round. *Loss pass* is what asking every client for its loss over all its "
        "examples adds to FedAvg; *more* is what the method adds to FedAvg that asks for the same "
        "loss: the median of the differences, round by round in turns. *To FedAvg* leaves the pass "
        "out of both, and the bar is on it; *to both* is the method's round to that of FedAvg "
        "with the pass.",
        ("workload", "method", "FedAvg", "loss pass", "more", "to both", "to FedAvg"),
    )
    for name in (n for n in names if n in ("lin", "mlp")):
        data = federation(WORKLOADS[name])
        base = {fact: f"asks {fact}" for fact in ("loss", "validation_loss")} | {None: "fedavg"}
        asking = {base[fact]: [Asks(fact=fact)] for fact in base if fact}
        entrants = {"fedavg": "fedavg", **asking, **{method: method for method in METHODS}}
        runs = {
            text: Rounds(
                experiment(
                    WORKLOADS[name],
                    what,
                    data=data,
                    lstar="best_validation(rounds=1)" if text == "eagle" else "none",
                )
            )
            for text, what in entrants.items()
        }
        # A method's turn comes right after one of what it is compared with.
        pairs = [
            [Contestant(f"before {m}", runs[base[fact]]), Contestant(m, runs[m])]
            for m, fact in METHODS.items()
        ]
        times = turns(
            [Contestant("fedavg", runs["fedavg"]), *chain.from_iterable(pairs)],
            repeats * MORE[name],
            wanted=1,
        )
        for runner in runs.values():
            runner.close()
        plain = statistics.median(times["fedavg"])
        for method, fact in METHODS.items():
            before = times[f"before {method}"]
            passed = statistics.median(before) - plain if fact else 0.0
            more = statistics.median(map(sub, times[method], before))
            both, alone = (1 + more / base_ms for base_ms in (plain + passed, plain))
            cells = (number(plain), number(passed), f"{more:.2f}", f"{both:.2f}x", f"{alone:.2f}x")
            section.rows.append((name, method, *cells))
            section.bars.append(Bar(f"{name}: {method} to FedAvg", alone, COST))
    return section


def combining() -> Section:
    """Time FedFV's server on many large updates, and weigh it."""
    found = memory.ask("fedfv", CLIENTS, PARAMETERS)
    section = Section(
        "FedFV on the server",
        f"{CLIENTS} updates of {PARAMETERS:,} parameters, with those of the last round "
        "remembered. Peak memory above imports, the updates themselves included.",
        ("updates, MB", "seconds", "peak, MB", "peak / updates"),
    )
    ratio = found["peak"] / found["matrix"]
    section.rows.append(
        (
            f"{found['matrix'] / 1e6:.0f}",
            number(found["seconds"]),
            f"{found['peak'] / 1e6:.0f}",
            f"{ratio:.2f}x",
        )
    )
    section.bars += [
        Bar("FedFV's server", found["seconds"], SECONDS, unit=" s"),
        Bar("FedFV's memory to the updates", ratio, MATRICES),
    ]
    return section
