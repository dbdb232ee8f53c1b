"""The cells of a table, side by side on the cores: a run each, kept, and never two cores to one."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import torch


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    study: str
    label: str
    seed: int
    rounds: int
    folder: Path


@dataclass(frozen=True)
class Found:
    """What a run came to: its numbers, or why it has none."""

    numbers: dict[str, float] = field(default_factory=dict)
    reason: str = ""


def outcomes(
    cells: Sequence[Cell], one: Callable[[Cell], Found], workers: int
) -> Iterator[tuple[Cell, Found]]:
    """Yield what each cell came to, as it is found; a failure is told and stops no other."""
    context = multiprocessing.get_context("spawn")
    place = context.Value("i", 0)
    began = time.monotonic()
    with ProcessPoolExecutor(workers, context, _settle, (place,)) as pool:
        running = {pool.submit(one, cell): cell for cell in cells}
        for done, future in enumerate(as_completed(running), 1):
            cell = running[future]
            try:
                found = future.result()
            except BrokenProcessPool:
                found = Found(reason="a process was ended (memory?): run again to go on")
            except Exception as error:  # of one cell, which must not end the table
                found = Found(reason=f"{type(error).__name__}: {_line(error)}")
            told = found.reason or "done"
            took = time.monotonic() - began
            print(
                f"[{done} of {len(cells)}, {took:.0f} s] {cell.label}, seed {cell.seed}: {told}",
                file=sys.stderr,
                flush=True,
            )
            yield cell, found


def _settle(place: Synchronized[int]) -> None:
    """Give this process one core of its own, so that seconds are those of one core."""
    torch.set_num_threads(1)
    with place.get_lock():
        mine, place.value = place.value, place.value + 1
    if hasattr(os, "sched_setaffinity"):
        free = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {free[mine % len(free)]})


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
