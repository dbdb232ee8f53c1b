"""What becomes of a run directory that is damaged: the right numbers, or one line that says so.

    python benchmarks/damage.py [CASES]

makes small runs, one finished and one interrupted, and in each case damages one file of a copy of
one of them. The copy is then loaded, its model too, and resumed; what comes out is counted:

``right``
    The numbers are those of the undamaged run.
``told``
    One line said what is wrong.
``wrong``
    Other numbers, and nobody said so.
``traceback``
    Anything else that was raised.

The last two must never happen. The cases are drawn from a fixed seed.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

import fedparity as fp
from fedparity.run.watching import Silent

CASES, SEED, ROUNDS = 1440, 0, 6
UNREAD = ("report.html", "lock")
"""Nothing reads these again."""


class Numbers(NamedTuple):
    """What a run found."""

    clients: pd.DataFrame
    history: pd.DataFrame
    model: dict[str, torch.Tensor]
    rounds: int
    settings: dict[str, Any]

    def same(self, other: Numbers) -> bool:
        """Tell whether another run found the same."""
        return (
            self.clients.equals(other.clients)
            and self.history.equals(other.history)
            and self.model.keys() == other.model.keys()
            and all(torch.equal(tensor, other.model[name]) for name, tensor in self.model.items())
            and (self.rounds, self.settings) == (other.rounds, other.settings)
        )


class Interrupted(Exception):
    """Ends a run between two checkpoints."""


class StopAt(Silent):
    """Interrupts a run after a round."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm, self.now = algorithm, ""

    def stage(self, text: str, total: int) -> None:
        self.now = text

    def advance(self, done: int, note: str = "") -> None:
        if done == ROUNDS - 1 and self.now.startswith(self.algorithm):
            raise Interrupted


def experiment(seed: int) -> fp.Experiment:
    """Return a run of a second, which keeps state on its server and measures L*."""
    data = fp.datasets.digits().split("dirichlet(alpha=0.5)", clients=4, seed=0)
    return fp.Experiment(
        data,
        fp.Classification("linear"),
        "eagle(lam=0.1)+momentum",
        rounds=ROUNDS,
        solver=fp.Solver(lr=0.1, steps=2, batch=8),
        lstar="best_validation(rounds=3)",
        evaluate_every=1,
        checkpoint_every=2,
        seed=seed,
    )


def make_runs(folder: Path) -> None:
    """Write ``finished`` and ``interrupted``, and the same of another seed."""
    for prefix, seed in (("", 0), ("other-", 1)):
        made = experiment(seed)
        made.run(folder / f"{prefix}finished")
        try:
            made.run(folder / f"{prefix}interrupted", watch=StopAt("eagle"))
        except Interrupted:
            continue
        raise AssertionError("the run was not interrupted")


Harm = Callable[[bytes, random.Random], bytes | None]
"""Returns the damaged content, or None for a file that is gone."""


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Flip one bit."""
    found = bytearray(content)
    if found:
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def truncated(content: bytes, rng: random.Random) -> bytes:
    """Cut the end off."""
    return content[: rng.randrange(len(content))] if content else b""


def zeroed(content: bytes, rng: random.Random) -> bytes:
    """Zero a block, as a disk does."""
    start = rng.randrange(len(content)) if content else 0
    end = min(len(content), start + rng.choice((1, 64, 512)))
    return content[:start] + bytes(end - start) + content[end:]


def randomised(content: bytes, rng: random.Random) -> bytes:
    """Put noise in its place."""
    return rng.randbytes(len(content))


def longer(content: bytes, rng: random.Random) -> bytes:
    """Add noise to the end."""
    return content + rng.randbytes(rng.choice((1, 64, 512)))


def another_digit(content: bytes, rng: random.Random) -> bytes:
    """Change one digit of a text to another: what is left is still well written."""
    digits = [at for at, byte in enumerate(content) if chr(byte).isdecimal() and byte < 128]
    if not digits:
        return content
    found = bytearray(content)
    found[rng.choice(digits)] = rng.choice(b"0123456789")
    return bytes(found)


def emptied(content: bytes, rng: random.Random) -> bytes:
    """Leave nothing in the file."""
    return b""


def deleted(content: bytes, rng: random.Random) -> None:
    """Leave no file."""


HARMS: tuple[Harm, ...] = (
    *(flipped, flipped, flipped, truncated, truncated, zeroed, zeroed, randomised, longer),
    *(another_digit, another_digit, another_digit, emptied, deleted),
)


class Case(NamedTuple):
    """One file of one run, and what is done to it."""

    run: str
    file: str
    harm: str
    content: bytes | None


def draw(folder: Path, cases: int) -> Iterator[Case]:
    """Draw what to damage: file after file of both runs, each time with the next harm."""
    rng = random.Random(SEED)
    files = [
        (run, str(file.relative_to(folder / run)))
        for run in ("finished", "interrupted")
        for file in sorted((folder / run).rglob("*"))
        if file.is_file() and file.name not in UNREAD
    ]
    for number in range(cases):
        run, file = files[number % len(files)]
        turn = (number + number // len(files)) % (len(HARMS) + 1)
        if turn == len(HARMS):  # the same file of another run
            other = folder / f"other-{run}" / file
            yield Case(run, file, "swapped", other.read_bytes() if other.exists() else None)
            continue
        harm = HARMS[turn]
        yield Case(run, file, harm.__name__, harm((folder / run / file).read_bytes(), rng))


def read(directory: Path) -> Numbers:
    """Load what a finished run left."""
    found = fp.Result.load(directory)
    state = dict(found.model().state_dict())
    return Numbers(found.clients, found.history, state, found.rounds, found.settings)


def resumed(directory: Path) -> Numbers:
    """Go on with a run, to the end, as its directory tells."""
    fp.resume(directory)
    return read(directory)


def outcome(act: Callable[[Path], Numbers], directory: Path, wanted: Numbers) -> str:
    """Return what becomes of an act on a damaged directory."""
    try:
        found = act(directory)
    except fp.FedparityError as error:
        return "told" if str(error) and "\n" not in str(error) else "traceback"
    except Exception:
        traceback.print_exc()
        return "traceback"
    return "right" if found.same(wanted) else "wrong"


def damaged(folder: Path, case: Case, wanted: Numbers) -> dict[str, str]:
    """Return what becomes of loading and of resuming a copy with the damage of a case."""
    found = {}
    acts = {"load": read, "resume": resumed} if case.run == "finished" else {"resume": resumed}
    for name, act in acts.items():
        copy = folder / "copy"
        shutil.copytree(folder / case.run, copy)
        if case.content is None:
            (copy / case.file).unlink()
        else:
            (copy / case.file).write_bytes(case.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[name] = outcome(act, copy, wanted)
        shutil.rmtree(copy)
    return found


def drill(folder: Path, cases: int) -> Counter[tuple[str, str]]:
    """Return how often an act had an outcome, over all cases."""
    make_runs(folder)
    wanted, counts = read(folder / "finished"), Counter[tuple[str, str]]()
    for number, case in enumerate(draw(folder, cases), 1):
        for act, end in damaged(folder, case, wanted).items():
            counts[act, end] += 1
            if end in ("wrong", "traceback"):
                print(f"{act} {case.run}/{case.file} {case.harm}: {end}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{number} of {cases}", end="", file=sys.stderr)
    return counts


def main(cases: int = CASES) -> int:
    """Damage and count; return how often it went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        counts = drill(Path(folder), cases)
    for act in ("load", "resume"):
        told = ", ".join(f"{counts[act, e]} {e}" for e in ("right", "told", "wrong", "traceback"))
        print(f"{act}: {told}")
    return sum(n for (_, end), n in counts.items() if end in ("wrong", "traceback"))


if __name__ == "__main__":
    sys.exit(min(1, main(*map(int, sys.argv[1:]))))
