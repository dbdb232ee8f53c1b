"""The runs that a study has yet to do: which they are, and doing them one after another."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from fedparity.data import Federation
from fedparity.imports import Allowed
from fedparity.studies.places import place, put_aside
from fedparity.studies.runs import Run, note_of
from fedparity.studies.schedule import Board, Task, Watch
from fedparity.studies.work import Order, Outcome, perform

AGAIN = ("damaged", "failed")
"""States of runs that can be run again."""


def tasks(
    runs: Iterable[Run], again: Collection[str], data_dir: str | None, allowed: Allowed
) -> list[Task]:
    """Return what is left to be done, each address once.

    Runs of the states ``again`` are done again: the reason that they left is removed, and what a
    damaged one left is put aside.
    """
    found = {}
    for run in runs:
        state = run.read()[0].state
        if state in ("done", "diverged") or (state in AGAIN and state not in again):
            continue
        if state == "damaged":
            put_aside(run.directory)
        run.note.unlink(missing_ok=True)
        order = Order(run.cell.settings, run.directory, data_dir, allowed)
        found[run.address] = Task(run.name, order, run.alone)
    return list(found.values())


def here(
    tasks: Sequence[Task], federation: Federation | None, board: Board, tell: Watch
) -> Outcome | None:
    """Do tasks one after another in this process; return how the disk was full, if it was."""
    for task in tasks:
        board.running[0] = (task.name, {})
        tell(board)
        outcome = perform(task.order, None, federation)
        del board.running[0]
        if outcome.state == "full":
            return outcome
        if outcome.state == "stopped":
            raise KeyboardInterrupt(f"stopped: {board.done} of {board.total} runs are done")
        board.done += 1
        board.bad += outcome.state != "done"
        ended(task, outcome)
    tell(board)
    return None


def ended(task: Task, outcome: Outcome) -> None:
    """Write down why a run has no result."""
    if outcome.state in AGAIN:
        text = json.dumps({"state": outcome.state, "reason": outcome.reason})
        place(note_of(task.order.directory), text)
