"""The papers' claims on real data: run a study and print its table.

    python benchmarks/papers STUDY [--seeds N] [--rounds N] [--out runs/papers]

A run that is already in the output directory is read, one that was stopped goes on, so a study can
be interrupted and continued at any time. The tables of ``docs/results.md`` come from here.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import choice
import everyone
import steps
from eagle import EAGLE
from fedeba import FEDEBA
from fedfv import (
    FEDFV2,
    FEDFV2_PLAIN,
    FEDFV3,
    FEDFV3_LAST,
    FEDFV3_PLAIN,
    FEDFV4,
    FEDFV4_CLOTHES,
)
from pgvc import PGVC, PGVC_DIGITS
from study import run, table

STUDIES = {
    "fedfv2": FEDFV2,
    "fedfv2-plain": FEDFV2_PLAIN,
    "fedfv3": FEDFV3,
    "fedfv3-last": FEDFV3_LAST,
    "fedfv3-plain": FEDFV3_PLAIN,
    "fedfv4": FEDFV4,
    "fedfv4-clothes": FEDFV4_CLOTHES,
    "fedeba": FEDEBA,
    "pgvc": PGVC,
    "pgvc-digits": PGVC_DIGITS,
    "eagle": EAGLE,
}

WHOLE = {"fedeba-choice": choice.main, "eagle-steps": steps.main}
"""Studies that are run and told in their own way."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=[*STUDIES, *WHOLE, *everyone.ALL])
    parser.add_argument("--seeds", type=int, help="how many of the study's seeds")
    parser.add_argument("--rounds", type=int, help="instead of the study's own number")
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"))
    parser.add_argument("--write", type=Path, help="a page with the study's marks (everyone-...)")
    asked = parser.parse_args()
    if asked.study in WHOLE:
        WHOLE[asked.study](asked.out / asked.study)
        return
    if asked.study in everyone.ALL:
        everyone.main(asked.study, asked.out, asked.seeds, asked.rounds, asked.only, asked.write)
        return
    study = STUDIES[asked.study]
    rounds = asked.rounds or study.rounds
    seeds = study.seeds[: asked.seeds]
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        for place, setting in enumerate(study.settings):
            if asked.only not in setting.label:
                continue
            began = time.monotonic()
            folder = asked.out / asked.study / f"{place:02d}-{seed}-{rounds}"
            result = run(study, setting, seed, rounds, folder)
            rows.setdefault(setting.label, [])
            if result is not None:
                rows[setting.label].append(study.columns(result))
            took = time.monotonic() - began
            print(f"{setting.label}, seed {seed}: {took:.0f} s", file=sys.stderr, flush=True)
    print(f"{study.title}; {rounds} rounds, seeds {', '.join(map(str, seeds))}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
