"""The papers' claims on real data that no packaged study asks: run them and print their tables.

    python benchmarks/papers STUDY [--seeds N] [--rounds N] [--out runs/papers]

A run that is already in the output directory is read, one that was stopped goes on, so a study can
be interrupted and continued at any time. The papers' own tables are ``fedparity study --list``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import choice
import everyone

WHOLE = {"fedeba-choice": choice.main}
"""Studies that are run and told in their own way."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=[*WHOLE, *everyone.ALL])
    parser.add_argument("--seeds", type=int, help="how many of the study's seeds")
    parser.add_argument("--rounds", type=int, help="instead of the study's own number")
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"))
    parser.add_argument("--write", type=Path, help="a page with the study's marks (everyone-...)")
    asked = parser.parse_args()
    if asked.study in WHOLE:
        WHOLE[asked.study](asked.out / asked.study)
        return
    everyone.main(asked.study, asked.out, asked.seeds, asked.rounds, asked.only, asked.write)


if __name__ == "__main__":
    main()
