"""Compare a round of this checkout with one of another, each in a process of its own, in turns.

python benchmarks/versions.py OTHER [WORKLOAD ...] [--algorithm TEXT] [--repeats N]

OTHER is a folder with another checkout of this repository. A ratio is the median of the
ratios of turns beside each other; below one, this checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CALLS = {"lin": 40, "mlp": 4, "silo": 2, "device": 40, "cnn": 1}
"""Rounds in a turn."""
WARM = 2
"""Turns before the clock starts."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(CALLS))
    parser.add_argument("--algorithm", default="fedavg", help="what both run")
    parser.add_argument("--repeats", type=int, default=25, help="turns of each")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if unknown := set(asked.workloads) - set(CALLS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}: {', '.join(CALLS)}")
    if not (asked.other / "benchmarks" / "contest.py").exists():
        parser.error(f"{asked.other} is no checkout of this repository")
    if asked.serve:
        serve(asked.other.resolve(), asked.workloads[0], asked.algorithm)
        return
    for name in asked.workloads or CALLS:
        compare(asked.other, name, asked.algorithm, asked.repeats)


def serve(tree: Path, name: str, algorithm: str) -> None:
    """Do a turn of a checkout's rounds for every line that is read."""
    sys.path[:0] = [str(tree / "src"), str(tree / "benchmarks")]
    from contest import Contestant, Rounds, experiment
    from workloads import WORKLOADS

    import fedparity

    assert tree in Path(str(fedparity.__file__)).parents
    turn = Contestant("ours", Rounds(experiment(WORKLOADS[name], algorithm)))
    for _ in range(WARM):
        turn.turn(CALLS[name])
    print(json.dumps({"version": str(tree)}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"ms": turn.turn(CALLS[name])}), flush=True)


def compare(other: Path, name: str, algorithm: str, repeats: int) -> None:
    """Print the milliseconds of both, and how many times the other's ours are."""
    from contest import Times
    from others import Driver

    def process(tree: Path) -> Driver:
        words = [str(Path(__file__)), str(tree), name, "--algorithm", algorithm, "--serve"]
        return Driver([sys.executable, *words])

    with process(HERE.parent) as ours, process(other) as theirs:
        ours.told()
        theirs.told()
        times = Times(ours=[], theirs=[])
        for turn in range(repeats):
            for who in ("ours", "theirs") if turn % 2 else ("theirs", "ours"):
                times[who].append((ours if who == "ours" else theirs).round())
    print(
        f"{name}, {algorithm}: this {times.median('ours'):.4g} ms, other "
        f"{times.median('theirs'):.4g} ms, ratio {times.ratio('ours', 'theirs'):.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
