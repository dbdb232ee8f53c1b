"""Is a planted stable partition found, and how long do coalitions take?

    python benchmarks/coalitions.py [SEEDS]

Six clients are dealt at random into two or three camps. Each camp has a rule of its own, orthogonal
to the others', and each client 12 examples of its camp's rule to train on and 200 to judge by: with
those of another camp every client loses, and without one of its own some do. So no group would
leave the camps. All 63 coalitions are trained on several draws of the examples. Counted is on how
many seeds the camps are stable by mean losses, on how many nothing else is, and what is said with
certainty. With $FEDPARITY_DATA, heart disease is timed as well: 15 coalitions, 3 seeds.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

import numpy as np

import fedparity as fp

CLIENTS, INPUTS, TRAIN, TEST = 6, 8, 12, 200
DRAWS = 12
"""Of the examples. By the means of six, a group of four that gains by staying may seem to lose."""
CAMPS = ((3, 3), (4, 2), (2, 2, 2))
STRENGTH = 3.0
Partition = tuple[tuple[str, ...], ...]


def planted(seed: int) -> tuple[Partition, np.ndarray]:
    """Return the camps of a seed, and the rule ``[INPUTS]`` of every client."""
    rng = np.random.default_rng([seed, 1])
    sizes = CAMPS[rng.integers(len(CAMPS))]
    camp = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rules = np.linalg.qr(rng.normal(size=(INPUTS, INPUTS)))[0][:, : len(sizes)].T
    blocks = [tuple(f"c{k}" for k in np.flatnonzero(camp == c)) for c in range(len(sizes))]
    return tuple(sorted(blocks)), STRENGTH * rules[camp]


def federation(rules: np.ndarray, seed: int, draw: int) -> fp.Federation:
    """Return one draw of the clients' examples."""
    rng = np.random.default_rng([seed, 2, draw])
    owner = np.repeat(np.arange(CLIENTS), TRAIN + TEST)
    x = rng.normal(size=(len(owner), INPUTS))
    y = ((x * rules[owner]).sum(axis=1) + rng.logistic(size=len(owner)) > 0).astype(int)
    part = np.tile(np.repeat(["train", "test"], [TRAIN, TEST]), CLIENTS)
    return fp.Federation.from_arrays(x, y, [f"c{k}" for k in owner], part)


def drill(seed: int) -> tuple[list[Partition], Partition, str]:
    """Return the partitions found stable, the camps, and what was said of them."""
    camps, rules = planted(seed)

    def of_draw(draw: int) -> fp.Experiment:
        data = federation(rules, seed, draw)
        solver = fp.Solver(lr=0.5, steps=1)
        return fp.Experiment(data, "linear", rounds=20, solver=solver, lstar="none", seed=draw)

    found = fp.coalitions(of_draw, seeds=DRAWS)
    return found.stable(), camps, found.verdict(camps)


def heart() -> float:
    """Return the seconds that heart disease takes."""

    def of_seed(seed: int) -> fp.Experiment:
        data = fp.datasets.heart_disease().split("natural", seed=seed)
        solver = fp.Solver(lr=0.1, steps=1)
        return fp.Experiment(data, "linear", rounds=100, solver=solver, seed=seed)

    started = time.perf_counter()
    fp.coalitions(of_seed, seeds=3)
    return time.perf_counter() - started


def main(seeds: int) -> None:
    """Print what was found."""
    right, alone, said = 0, 0, Counter[str]()
    for seed in range(seeds):
        stable, camps, verdict = drill(seed)
        right, alone = right + (camps in stable), alone + (stable == [camps])
        said[verdict] += 1
        others = len(set(stable) - {camps})
        what = "found" if camps in stable else "not found"
        print(f"seed {seed}: {what}, {others} others; certainly: {verdict}", flush=True)
    print(
        f"the planted partition was found stable on {right} of {seeds} seeds, on {alone} as the "
        f"only one; certainly: {dict(said)}"
    )
    if os.environ.get("FEDPARITY_DATA"):
        print(f"heart disease, 15 coalitions, 3 seeds: {heart():.1f} s")
    if right < seeds:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
