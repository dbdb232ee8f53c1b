"""The tasks by name, and the usual one of a kind of data."""

from __future__ import annotations

from fedparity import spec
from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed, complete, look_up, make
from fedparity.learning.outcomes import Binary, MultiLabel
from fedparity.learning.survival import Survival
from fedparity.learning.task import (
    GIVEN,
    Classification,
    Factory,
    Model,
    NextToken,
    Regression,
    Task,
)

TASKS: dict[str, type[Task]] = {
    "classification": Classification,
    "binary": Binary,
    "multi_label": MultiLabel,
    "regression": Regression,
    "next_token": NextToken,
    "survival": Survival,
}
KINDS: dict[str, tuple[str, ...]] = {
    "classes": ("classification", "binary"),
    "values": ("regression",),
    "labels": ("multi_label",),
    "tokens": ("next_token",),
    "survival": ("survival",),
}
"""The tasks of each kind of data, the usual one first."""


def task_for(kind: str, model: Model) -> Task:
    """Return the usual task of a federation: classes are classified, values regressed."""
    return TASKS[usual(kind)](model)


def usual(kind: str) -> str:
    """Return the name of the usual task of a kind of data."""
    if kind not in KINDS:
        raise InputError(f"no default task for data of kind '{kind}'")
    return KINDS[kind][0]


def read(text: str, model: Factory | str, allowed: Allowed = NOTHING) -> Task:
    """Return the task that a text names for a model, such as ``classification(weights=[1, 3])``.

    It may name the code that is allowed.
    """
    term = spec.parse_one(text)
    for setting in term.settings:
        if setting in GIVEN:
            raise InputError(f"'{text}': '{setting}' is no setting of a task")
    made = make("task", term, TASKS, allowed, Task, given=(model,))
    if term.name not in TASKS:
        code = look_up("task", term, TASKS, allowed, Task)
        made.written = complete(code, term, without=GIVEN)
    return made
