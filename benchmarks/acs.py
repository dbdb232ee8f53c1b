"""The census sample whole: a round over 51 states beside one pass over the same rows.

    FEDPARITY_DATA=DIRECTORY python benchmarks/acs.py

A round of FedAvg in which every state takes one full-batch step is the gradient of all rows, which
a pooled pass (forward, backward, step) computes without clients. Memory is measured in a process of
its own, above what imports take. Prints bars and tables as they stand in docs/performance.md.
"""

from __future__ import annotations

import json
import subprocess
import sys

import page
import torch
from contest import Contestant, Rounds, turns
from memory import peak, resident
from report import Bar, Section, bars_markdown, number
from torch import nn

import fedparity as fp
from fedparity.engines.engine import intraop

REPEATS, ROUNDS = 11, 20
SLOWER, MEMORY = 1.3, 2.5
"""Bars: a round over the pooled pass, and memory over the data."""
SPLITS = ("train", "validation", "test")


def experiment() -> fp.Experiment:
    """Return FedAvg of one full-batch step over all states."""
    federation = fp.datasets.acs_income().split("natural")
    solver = fp.Solver(lr=0.5, steps=1, batch=None)
    return fp.Experiment(federation, "linear", "fedavg", rounds=ROUNDS, solver=solver, lstar="none")


class Pooled:
    """One pass over all training rows and a step, as one writes it by hand."""

    def __init__(self, federation: fp.Federation) -> None:
        self.x, self.y = federation.train.x, federation.train.y
        self.model = nn.Linear(self.x.shape[1], federation.outputs)
        self.step = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.loss = nn.CrossEntropyLoss()

    def __call__(self) -> None:
        self.step.zero_grad()
        self.loss(self.model(self.x), self.y).backward()
        self.step.step()


def watched() -> None:
    """Run rounds in this process and print the bytes of the data and of the memory."""
    before = resident()
    made = experiment()
    built = resident() - before
    rounds = Rounds(made)
    with intraop(1):
        for _ in range(ROUNDS):
            rounds()
    parts = (getattr(made.federation, split) for split in SPLITS)
    data = sum(part.x.nbytes + part.y.nbytes for part in parts)
    held = {"data": data, "built": built, "after": resident() - before, "peak": peak() - before}
    print(json.dumps(held))


def measure() -> Section:
    """Measure time and memory."""
    load = page.load()
    command = [sys.executable, __file__, "memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held = json.loads(done.stdout.splitlines()[-1])
    made = experiment()
    pooled = Pooled(made.federation)
    rounds = Rounds(made)
    found = turns(
        [
            Contestant("round", rounds),
            Contestant("pooled", pooled),
            Contestant("pooled, two threads", pooled, threads=2),
        ],
        REPEATS,
    )
    rounds.close()
    best = found.fastest("pooled", "pooled, two threads")
    train = made.federation.train
    section = Section(
        "The census sample whole",
        f"`acs_income`: {len(train):,} training rows of {len(made.federation)} states, "
        f"{train.x.shape[1]} inputs, linear; a round is one full-batch step of every state. The "
        "pooled pass is torch's own over the same rows; of one thread or two the faster counts. "
        "*Data* are the examples of all splits as they lie in memory; memory is counted above what "
        "imports take, *peak* from reading the file on.",
        ("what", "measured"),
    )
    for name in found:
        section.rows.append((f"{name}, ms", number(found.median(name))))
    for name, value in held.items():
        section.rows.append((f"memory: {name}, MB", number(value / 2**20)))
    section.bars += [
        Bar("census: a round to the pooled pass", found.ratio("round", best), SLOWER),
        Bar("census: memory with rounds to the data", held["after"] / held["data"], MEMORY),
        Bar("census: peak from reading on to the data", held["peak"] / held["data"], MEMORY),
    ]
    section.notes.append(f"`python benchmarks/acs.py`, {page.circumstances(load)}")
    return section


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        watched()
    else:
        found = measure()
        print(f"{bars_markdown([found])}\n\n{found.markdown()}")
