"""Measure how fast fedparity is, against others and against bars.

    python benchmarks/speed.py [WORKLOAD ...] [--repeats N] [--peers DIR] [--write]

Without names all five workloads are measured, and all sections unless ``--only`` names some.
``--write`` writes the page docs/performance.md and its figure. A quiet machine is needed:
contestants alternate, but a busy machine has other ratios. The section "acs" needs its data in
$FEDPARITY_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import acs
import all_methods
import busy
import choice
import compiled
import device
import evaluation
import methods
import models
import others
import page
import rounds
import scaling
import whole
from report import Section
from rich.console import Console
from workloads import WORKLOADS

QUIET = 0.5
"""Load of the machine above which a warning is given."""
SECTIONS = (
    "rounds",
    "models",
    "peers",
    "busy",
    "device",
    "methods",
    "corrections",
    "all methods",
    "fedmgda+",
    "fedfv",
    "evaluation",
    "whole",
    "acs",
    "compile",
    "scaling",
    "choice",
)


def command(peers: Path | None) -> str:
    """Return how this was called; where the peers lie is nobody else's affair."""
    words = ["peers" if peers is not None and Path(word) == peers else word for word in sys.argv]
    return " ".join(["python benchmarks/speed.py", *words[1:]])


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=11, help="turns of every contestant")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="sections to measure")
    parser.add_argument("--rounds", type=int, default=whole.ROUNDS, help="rounds of the whole run")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    asked = parser.parse_args()
    for name in asked.workloads:
        if name not in WORKLOADS:
            parser.error(f"unknown workload '{name}': {', '.join(WORKLOADS)}")
    if asked.repeats < 1:
        parser.error("--repeats must be at least 1")
    return asked


def met(folder: Path | None, names: Sequence[str], repeats: int) -> others.Found:
    """Return the peers' times, if there is a folder of them."""
    return {} if folder is None else others.collect(folder, names, repeats)


def main() -> None:
    asked, out = arguments(), Console(highlight=False)
    names = asked.workloads or list(WORKLOADS)
    wanted = asked.only or SECTIONS
    sections: list[Section] = []
    figure = None

    def add(name: str, measure: Callable[[], Section]) -> None:
        if name in wanted:
            out.print(f"measuring {name} ...", style="dim")
            sections.append(measure())
            sections[-1].show(out)

    before = page.load()
    out.print(f"{page.machine()}; load {before:.2f}", markup=False)
    if before > QUIET:
        out.print("The machine is not quiet: these ratios will not be its own.", style="yellow")
    add("rounds", lambda: rounds.measure(names, asked.repeats))
    ours = rounds.ours(sections[0]) if "rounds" in wanted else {}
    add("models", lambda: models.measure(asked.repeats))
    add("peers", lambda: rounds.peers_section(met(asked.peers, names, asked.repeats), ours))
    add("busy", lambda: busy.measure(names, max(3, asked.repeats // 2)))
    add("device", lambda: device.measure(asked.repeats))
    add("methods", lambda: methods.measure(names, asked.repeats))
    add("corrections", lambda: methods.corrections(names, asked.repeats))
    add("all methods", lambda: all_methods.measure(names, asked.repeats))
    add("fedmgda+", lambda: all_methods.with_everyone(asked.repeats))
    add("fedfv", methods.combining)
    add("evaluation", lambda: evaluation.measure(names, asked.repeats))
    add("whole", lambda: whole.measure(asked.rounds))
    if os.environ.get("FEDPARITY_DATA"):
        add("acs", acs.measure)
    add("compile", lambda: compiled.measure(names, asked.repeats))
    if "scaling" in wanted:
        out.print("measuring scaling ...", style="dim")
        found, figure = scaling.measure(max(3, asked.repeats // 2))
        sections.append(found)
        found.show(out)
    # Last, for what a slow engine leaves behind in memory slows others.
    add("choice", lambda: choice.measure(names, asked.repeats))
    failed = [bar for section in sections for bar in section.bars if not bar.passed]
    out.print(f"{len(failed)} bars not reached", style="red" if failed else "green")
    if asked.write:
        page.write(sections, command(asked.peers), figure, before)


if __name__ == "__main__":
    main()
