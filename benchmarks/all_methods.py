"""What every method of the catalogue costs whose mathematics needs no further pass."""

from __future__ import annotations

from collections.abc import Sequence

from contest import Contestant, Rounds, Times, experiment, federation, turns
from methods import Pass
from report import Bar, Section, number
from workloads import WORKLOADS

import fedparity as fp
from fedparity.catalogue.methods import named_algorithms
from fedparity.errors import InputError
from fedparity.method.algorithm import Algorithm
from fedparity.recipes import algorithm

ONE_PASS = frozenset(
    {"loss", "validation_loss", "accuracy", "right", "lstar", "label_counts", "first_contact"}
)
"""Facts that one pass over examples, or none, tells."""
INSIDE = ("fedeba(signal=pre)", "term(inner=1.0)")
"""Settings of methods that are measured beside the defaults."""
ARITHMETIC = {
    "lp_proj": "60 products of the model's size a step",
    "paper_dp": "a random number a parameter and step",
}
"""Methods whose formula asks for more arithmetic than a step has: told, without a bar."""
COST = 1.3
"""Times FedAvg's round and its loss pass that a method's round may take."""
TWO_MODELS = {"ditto": 2.1, "apfl": None}
"""Methods that train a second model on every client, and times FedAvg's round they may take."""
MORE_MS = 20.0
"""Milliseconds more than FedAvg's round that FedMGDA+ may take with all 100 clients."""
TURNS = {"lin": 6, "mlp": 2}
"""Times the repeats of other sections, a round each."""


def needs_no_pass(made: Algorithm) -> bool:
    """Tell whether a method's round is one exchange with one pass over examples at the most."""
    own = frozenset(made.own_facts)
    further = any(
        map(made.having, ("probe", "at", "tracks", "move", "judge", "examples", "second"))
    )
    return made.trains and not made.alone and not further and made.train_reads <= ONE_PASS | own


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time all such methods, those with two models, FedAvg and its loss pass, in turns."""
    section = Section(
        "All methods",
        "Milliseconds a round of every method of the catalogue that needs no further pass: "
        f"within {COST} times FedAvg's round and the pass that measures all losses, whether the "
        "method asks for them or not. Methods that train a second model on every client are "
        "compared with FedAvg's round alone.",
        ("workload", "method", "FedAvg", "loss pass", "round", "to FedAvg", "to both"),
    )
    for name in (n for n in names if n in TURNS):
        data = federation(WORKLOADS[name])
        runs = dict(_runs(name, data))
        entrants = [Contestant(method, run) for method, run in runs.items()]
        entrants.append(Contestant("pass", Pass(runs["qffl"])))
        times = turns(entrants, repeats * TURNS[name], wanted=1)
        for run in runs.values():
            run.close()
        for method in runs:
            _tell(section, name, method, times)
    return section


def with_everyone(repeats: int) -> Section:
    """Time FedMGDA+ on the updates of 100 clients, and FedAvg, in turns."""
    section = Section(
        "FedMGDA+ with 100 clients",
        "Milliseconds a round in which all 100 clients train; more is the median difference.",
        ("workload", "FedAvg", "FedMGDA+", "more"),
    )
    for name in TURNS:
        data, known = federation(WORKLOADS[name]), {"cohort": 100}
        runs = {
            method: Rounds(experiment(WORKLOADS[name], method, data=data, **known))
            for method in ("fedavg", "fedmgda_plus")
        }
        times = turns([Contestant(*each) for each in runs.items()], 2 * repeats, wanted=1)
        for run in runs.values():
            run.close()
        more = times.more("fedmgda_plus", "fedavg")
        cells = (times.median("fedavg"), times.median("fedmgda_plus"), more)
        section.rows.append((name, *map(number, cells)))
        section.bars.append(Bar(f"{name}: FedMGDA+ more than FedAvg", more, MORE_MS, unit=" ms"))
    return section


def _runs(name: str, data: fp.Federation) -> list[tuple[str, Rounds]]:
    """Return a run of every method that is compared and that the workload's model allows."""
    found = []
    for method in (*named_algorithms(by_group=False), *INSIDE):
        if not (method in TWO_MODELS or needs_no_pass(algorithm(method))):
            continue
        lstar = "best_validation(rounds=1)" if method in ("eagle", "maxfl") else "none"
        try:
            made = experiment(WORKLOADS[name], method, data=data, lstar=lstar)
        except InputError:  # such as the last two layers of a model that has one
            continue
        found.append((method, Rounds(made)))
    return found


def _tell(section: Section, name: str, method: str, times: Times) -> None:
    alone = times.ratio(method, "fedavg")
    both = times.of(lambda ms, plain, passed: ms / (plain + passed), method, "fedavg", "pass")
    cells = map(number, (times.median("fedavg"), times.median("pass"), times.median(method)))
    why = next((told for key, told in ARITHMETIC.items() if method.startswith(key)), "")
    shown = f"{method} ({why})" if why else method
    section.rows.append((name, shown, *cells, f"{alone:.2f}x", f"{both:.2f}x"))
    if method in TWO_MODELS:
        if (most := TWO_MODELS[method]) is not None:
            section.bars.append(Bar(f"{name}: {method} to FedAvg", alone, most))
    elif not why:
        section.bars.append(Bar(f"{name}: {method} to FedAvg and the pass", both, COST))
