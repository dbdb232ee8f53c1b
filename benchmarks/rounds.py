"""A round of FedAvg: ours, a plain PyTorch loop and the arithmetic alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batched import arithmetic
from contest import Contestant, Rounds, Times, experiment, federation, turns, turns_of
from gemm import operations, rate
from others import Found, published
from plain import PlainLoop
from report import Bar, Section, number
from workloads import WORKLOADS, Workload

TWO_CORES = 2
MORE = 10
"""Times the repeats, for rounds of less than a second: a second's trouble is many of them."""
HAND = "arithmetic"
AT_MOST = {"lin": 2.5, "mlp": 1.3, "cnn": 1.1}
"""Times the arithmetic that a round may take."""
AT_LEAST = {
    "lin": {"plain": 30.0, "fedjax": 6.0, "flower": 120.0},
    "mlp": {"plain": 2.0, "pfl": 1.4},
    "cnn": {"plain": 1.25},
    "silo": {"plain": 1.2},
}
"""How many times as fast as others a round should be."""
AHEAD = ("flower", "flgo", "fedlab", "pfl", "fedjax")
"""Peers that cnn should be ahead of."""


def measure(names: Sequence[str], repeats: int, say: Callable[[str], object] = print) -> Section:
    """Time every contestant on the workloads named, slow rounds last; say times as they are known.

    One run does not tell all of the plain loop on mlp: on one machine its two threads took 48 ms in
    some runs and 68 in others, minutes apart. In the former a cache line took 46 ns from one core
    to the other, in the latter 170, as between two chips: where the host puts its cores decides.
    """
    title = "A round of FedAvg"
    text = (
        "Milliseconds a round, no evaluation. The plain loop is a copy of the model, torch's "
        "optimiser and a loop over clients. *Arithmetic* is the same forward pass, backward pass "
        "and SGD step written by hand as batched matrix products over the clients of the round "
        "(lin, mlp, device), client after client (silo) or client after client in channels-last "
        "order (cnn), with batches fixed beforehand. Both have one thread inside an operation or "
        "two, whichever is faster. *GEMM bound* is what the round's products alone would take at "
        "the speed of one large product with two threads. These are torch's usual operations, and "
        "ours may take less: the softmax of few classes is taken class by class, and on AMD's "
        "processors from Zen 5 on, large products of linear layers go to oneDNN, which torch "
        "brings too and which is about twice as fast there as MKL."
    )
    header = ("workload", "auto", "plain loop", HAND, "GEMM bound")
    section = Section(title, text, header)
    speed = rate(repeats, TWO_CORES)
    for name in sorted(names, key=lambda name: WORKLOADS[name].model == "cnn"):
        workload = WORKLOADS[name]
        times = contest(workload, turns_of(workload, repeats, MORE))
        bound = number(operations(experiment(workload)) / speed)
        shown = {who: number(times.median(who)) for who in times}
        say(f"{name}: " + ", ".join(f"{who} {ms}" for who, ms in shown.items()))
        cells = (shown["auto"], shown["plain"], shown[HAND], bound)
        section.rows.append((f"{name}: {workload}", *cells))
        section.bars += bars(name, times)
    return section


def contest(workload: Workload, repeats: int) -> Times:
    """Return the times of everyone."""
    data = federation(workload)
    ours = Rounds(experiment(workload, data=data))
    plain = PlainLoop(experiment(workload, data=data))
    by_hand = arithmetic(experiment(workload, data=data), workload.model)
    times = turns(
        [
            Contestant(f"{HAND}, 1", by_hand),
            Contestant(f"{HAND}, 2", by_hand, TWO_CORES),
            Contestant("auto", ours),
            Contestant("plain, 2", plain, TWO_CORES),
            Contestant("plain, 1", plain),
        ],
        repeats,
    )
    ours.close()
    for name in ("plain", HAND):
        # Two threads inside an operation fall off a cliff where a core is not free.
        times[name] = times[times.fastest(f"{name}, 1", f"{name}, 2")]
    return times


def bars(name: str, times: Times) -> list[Bar]:
    """Return the bars of a workload, but for those against peers."""
    found = []
    if name in AT_MOST:
        ratio = times.ratio("auto", HAND)
        found.append(Bar(f"{name}: of the arithmetic's time", ratio, AT_MOST[name]))
    if "plain" in AT_LEAST.get(name, {}):
        told, limit = f"{name}: times as fast as the plain loop", AT_LEAST[name]["plain"]
        found.append(Bar(told, times.ratio("plain", "auto"), limit, at_least=True))
    return found


def peer_bars(peers: Found) -> list[Bar]:
    """Return the bars against the peers that were measured."""
    wanted = {(peer, name): at for name, limits in AT_LEAST.items() for peer, at in limits.items()}
    wanted |= {(peer, "cnn"): 1.0 for peer in AHEAD}
    return [
        Bar(f"{name}: times as fast as {peer}", peers[peer, name].ratio, limit, at_least=True)
        for (peer, name), limit in wanted.items()
        if (peer, name) in peers
    ]


def ours(section: Section) -> dict[str, str]:
    """Return the milliseconds of auto by workload, as the section shows them."""
    return {row[0].partition(":")[0]: row[1] for row in section.rows}


def peers_section(peers: Found, ours: dict[str, str]) -> Section:
    """Return the table of other simulators."""
    text = (
        "Milliseconds a round of other simulators on the same work, each in a process of its own "
        "([how they are set](../benchmarks/peers/README.md)), in turns with ours, and how many "
        "times ours in these turns that is; the last row is from the table above. In brackets "
        "alone: published for two cores elsewhere, not measured here."
    )
    names = list(dict.fromkeys(name for _, name in published()))
    section = Section("Other simulators", text, ("simulator", *names))
    for peer in AHEAD:
        cells = []
        for name in names:
            here, there = peers.get((peer, name)), published().get((peer, name))
            cells.append(str(here) if here else f"({there})" if there else "-")
        section.rows.append((peer, *cells))
    section.bars += peer_bars(peers)
    if ours:
        section.rows.append(("fedparity", *(ours.get(name, "-") for name in names)))
    return section
