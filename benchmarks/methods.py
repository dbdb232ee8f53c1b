"""What methods cost beside FedAvg and the loss pass they ask for, if any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import memory
from contest import Contestant, Rounds, Times, experiment, federation, turns
from pydantic.dataclasses import dataclass
from report import Bar, Section, number
from torch import Tensor
from workloads import WORKLOADS

import fedparity as fp
from fedparity.method import STRICT, Fact, Part
from fedparity.method.messages import Down

FACTS: tuple[Literal["loss", "validation_loss"], ...] = ("loss", "validation_loss")
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
CORRECTIONS = {
    "lin": ("fedprox", "scaffold"),
    "mlp": ("fedprox", "fedpvr", "scaffold", "fedpgvc"),
}
"""Methods that correct the gradient of every step by a vector or two."""
CORRECTED = 1.4
"""Times FedAvg's round that theirs may take."""
COST = 1.15
"""Times FedAvg's round that a method's may take, with the loss pass on top or inside the product.

The first is the harder one for a round that takes longer than FedAvg's and the pass.
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
    """Time the methods, FedAvg, and the loss pass by itself, in turns."""
    section = Section(
        "Methods",
        "Milliseconds a round. *Loss pass* is what it takes, by itself, to measure the loss of "
        "every client of the round over all its examples. *To FedAvg* is the method's round less "
        "the pass, to FedAvg's round; *to both* the method's round to FedAvg's plus the pass; "
        "there is a bar on each. Both are below one where the pass goes on beside training and "
        "saves more than the method costs. What the method itself costs is *more*, without a bar: "
        "what it adds to a run of FedAvg that asks for the same loss and makes nothing of it.",
        ("workload", "method", "FedAvg", "loss pass", "round", "to FedAvg", "to both", "more"),
    )
    for name in (n for n in names if n in ("lin", "mlp")):
        data = federation(WORKLOADS[name])
        asking = {fact: _rounds(name, data, [Asks(fact=fact)]) for fact in FACTS}
        runs = {f"asks for {fact}": run for fact, run in asking.items()}
        runs |= {method: _rounds(name, data, method) for method in ("fedavg", *METHODS)}
        entrants = [Contestant(text, run) for text, run in runs.items()]
        entrants += [Contestant(fact, Pass(run)) for fact, run in asking.items()]
        times = turns(entrants, repeats * MORE[name], wanted=1)
        for run in runs.values():
            run.close()
        for method, fact in METHODS.items():
            alone, both, more = _ratios(times, method, fact)
            passed = times.median(fact) if fact else 0.0
            cells = (times.median("fedavg"), passed, times.median(method))
            ratios = (f"{alone:.2f}x", f"{both:.2f}x", f"{more:.2f}")
            section.rows.append((name, method, *map(number, cells), *ratios))
            section.bars.append(Bar(f"{name}: {method} to FedAvg", alone, COST))
            if fact:
                section.bars.append(Bar(f"{name}: {method} to FedAvg and the pass", both, COST))
    return section


def corrections(names: Sequence[str], repeats: int) -> Section:
    """Time the methods that correct every step's gradient, and FedAvg, in turns."""
    section = Section(
        "Corrections of the gradient",
        "Milliseconds a round of methods whose clients add a vector or two to the gradient of "
        "every step, or change its length, and FedAvg's beside them.",
        ("workload", "method", "FedAvg", "round", "to FedAvg"),
    )
    for name in (n for n in names if n in CORRECTIONS):
        data = federation(WORKLOADS[name])
        runs = {method: _rounds(name, data, method) for method in ("fedavg", *CORRECTIONS[name])}
        entrants = [Contestant(text, run) for text, run in runs.items()]
        times = turns(entrants, repeats * MORE[name], wanted=1)
        for run in runs.values():
            run.close()
        for method in CORRECTIONS[name]:
            ratio, cells = times.ratio(method, "fedavg"), map(times.median, ("fedavg", method))
            section.rows.append((name, method, *map(number, cells), f"{ratio:.2f}x"))
            section.bars.append(Bar(f"{name}: {method} to FedAvg", ratio, CORRECTED))
    return section


def _ratios(times: Times, method: str, fact: str | None) -> tuple[float, float, float]:
    """Return a method's round to FedAvg's, to FedAvg's and the pass, and what it adds."""
    if fact is None:
        ratio = times.ratio(method, "fedavg")
        return ratio, ratio, times.more(method, "fedavg")
    beside = (method, "fedavg", fact)
    alone = times.of(lambda ms, plain, passed: (ms - passed) / plain, *beside)
    both = times.of(lambda ms, plain, passed: ms / (plain + passed), *beside)
    return alone, both, times.more(method, f"asks for {fact}")


class Pass:
    """The loss pass that a run's next round would ask for, without the round."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def __call__(self) -> dict[str, Tensor]:
        run, state = self.rounds.run, self.rounds.state
        clients = run.experiment.sample(state.round + 1)
        down = Down("train", state.round + 1, 0.0, state.server.x, state.server.buffers)
        found: dict[str, Tensor] | None = run.door.engine.pooled(down, clients, down.buffers)
        assert found is not None
        return found


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
