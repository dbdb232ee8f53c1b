"""What methods cost on top of FedAvg and the loss pass they ask for, if any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import memory
from contest import Contestant, Rounds, experiment, federation, turns
from pydantic.dataclasses import dataclass
from report import Bar, Section, number
from workloads import WORKLOADS

import fedparity as fp
from fedparity.core.part import STRICT, Fact, Part

METHODS: dict[str, Literal["loss", "validation_loss"] | None] = {
    "qffl": "loss",
    "afl": "loss",
    "eagle": "validation_loss",
    "fedfv": "loss",
    "fedeba(signal=pre)": "loss",
    "momentum": None,
    "fedvarp": None,
}
"""Methods, and the loss each asks clients for."""
COST = 1.15
"""Times FedAvg's round that a method's may take, the loss pass aside; and times both, pass and all.

The first is the harder one, and the harder the faster FedAvg's round is.
"""
MORE = {"lin": 150, "mlp": 30}
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
        "examples adds to FedAvg; *more* is what the method adds to a run of FedAvg that asks for "
        "the same loss: the median of the differences, round by round in turns. *To both* is the "
        "method's round to FedAvg's plus the loss pass; *to FedAvg* leaves the pass out of both "
        "rounds, and so is the larger the faster FedAvg's is. There is a bar on each.",
        ("workload", "method", "FedAvg", "loss pass", "more", "to both", "to FedAvg"),
    )
    for name in (n for n in names if n in ("lin", "mlp")):
        data = federation(WORKLOADS[name])
        runs = {"fedavg": _rounds(name, data, "fedavg")}
        for method, fact in METHODS.items():
            # What a method is compared with is a run like it, as warm or cold as its own.
            runs[f"base of {method}"] = _rounds(name, data, [Asks(fact=fact)] if fact else "fedavg")
            runs[method] = _rounds(name, data, method)
        entrants = [Contestant(text, run) for text, run in runs.items()]
        times = turns(entrants, repeats * MORE[name], wanted=1)
        for run in runs.values():
            run.close()
        plain = times.median("fedavg")
        for method, fact in METHODS.items():
            base = f"base of {method}"
            passed = times.median(base) - plain if fact else 0.0
            more = times.more(method, base)
            both, alone = (1 + more / ms for ms in (plain + passed, plain))
            cells = (number(plain), number(passed), f"{more:.2f}", f"{both:.2f}x", f"{alone:.2f}x")
            section.rows.append((name, method, *cells))
            section.bars.append(Bar(f"{name}: {method} to FedAvg", alone, COST))
            if fact:
                section.bars.append(Bar(f"{name}: {method} to FedAvg and the pass", both, COST))
    return section


def _rounds(name: str, data: fp.Federation, algorithm: object) -> Rounds:
    lstar = "best_validation(rounds=1)" if algorithm == "eagle" else "none"
    return Rounds(experiment(WORKLOADS[name], algorithm, data=data, lstar=lstar))


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
