"""What methods cost on top of FedAvg, whose mathematics needs no extra pass over data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import memory
from contest import Contestant, Rounds, experiment, federation, medians
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
    """Time the methods against FedAvg, in turns."""
    section = Section(
        "Methods",
        "Milliseconds a round. *Loss pass* is what asking every client for its loss over all its "
        "examples adds to FedAvg; *cost* is the method without that pass, to FedAvg.",
        ("workload", "method", "ms", "FedAvg", "loss pass", "cost"),
    )
    for name in (n for n in names if n in ("lin", "mlp")):
        data = federation(WORKLOADS[name])
        asking = {f"asks {fact}": [Asks(fact=fact)] for fact in ("loss", "validation_loss")}
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
        times = medians([Contestant(text, runner) for text, runner in runs.items()], repeats)
        for runner in runs.values():
            runner.close()
        plain = times["fedavg"]
        for method, fact in METHODS.items():
            extra = max(0.0, times[f"asks {fact}"] - plain) if fact else 0.0
            cost = (times[method] - extra) / plain
            cells = (number(times[method]), number(plain), number(extra), f"{cost:.2f}x")
            section.rows.append((name, method, *cells))
            section.bars.append(Bar(f"{name}: {method} to FedAvg", cost, COST))
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
