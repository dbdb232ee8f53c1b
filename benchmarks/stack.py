"""How far a round of FedAvg goes through the code: modules it enters, and packages it changes.

    python benchmarks/stack.py

A change of package is a call from a function of one package below ``fedparity`` to one of another;
they are counted on the call stack that has most of them, for each engine.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import fedparity as fp
from fedparity.method.algorithm import Algorithm
from fedparity.testing import Bench, unlike_clients

SOURCE = str(Path(fp.__file__).parent)


class Stack:
    """Watches calls and keeps the modules met and the stack with most changes of package."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.crossings: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not ours(frame):
            return
        self.modules.add(module(frame))
        packages = [package(one) for one in outwards(frame)][::-1]
        changes = [f"{a} > {b}" for a, b in pairwise(packages) if a != b]
        if len(changes) > len(self.crossings):
            self.crossings = changes


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers that are of the package, up to where the round begins."""
    while frame is not None:
        if ours(frame):
            yield frame
            if frame.f_code.co_name == "round":
                return
        frame = frame.f_back


def ours(frame: FrameType) -> bool:
    """Tell whether a frame is of the package; the bench that begins the round is not counted."""
    file = frame.f_code.co_filename
    return file.startswith(SOURCE) and "testing" not in file.removeprefix(SOURCE)


def module(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(SOURCE).strip("/").removesuffix(".py")


def package(frame: FrameType) -> str:
    return module(frame).partition("/")[0]


@contextmanager
def watched(stack: Stack) -> Iterator[None]:
    threading.setprofile(stack)
    sys.setprofile(stack)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def watch_rounds(algorithm: Algorithm, stack: Stack) -> None:
    """Watch what each round calls, and nothing of who begins it."""
    whole = algorithm.round

    def round(*given: Any) -> Any:
        with watched(stack):
            return whole(*given)

    algorithm.round = round  # type: ignore[method-assign]


def counted(engine: str) -> Stack:
    """Return what a round of FedAvg calls on an engine, after one round that warms up."""
    solver = fp.Solver(lr=0.1, steps=2, batch=4)
    made = fp.Experiment(
        unlike_clients(), "linear", rounds=2, solver=solver, engine=engine, lstar="none"
    )
    bench, stack = Bench(made), Stack()
    bench.advance()
    watch_rounds(made.setup.algorithm, stack)
    bench.advance()
    return stack


def main() -> None:
    for engine in ("loop", "vmap"):
        stack = counted(engine)
        met = sorted(stack.modules)
        print(f"{engine}: {len(met)} modules, {len(stack.crossings)} changes of package")
        print("  " + ", ".join(met))
        print("  " + "; ".join(stack.crossings))


if __name__ == "__main__":
    main()
