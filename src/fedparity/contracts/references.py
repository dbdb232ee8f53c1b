"""The run that another one is compared with: one that was given, or its neighbour in a study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedparity.errors import DamagedError, InputError
from fedparity.imports import NOTHING
from fedparity.recipes import complete, read
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir

FREE = ("algorithm", "record", "checkpoint_every", "chunk", "engine", "device", "lstar")
"""Settings in which a run and its neighbour may differ; L* is always that of the run itself."""


def reference(result: Result, algorithm: str, given: Iterable[Result]) -> Result:
    """Return the run of an algorithm: of those given, or of those beside the run.

    A neighbour has the settings of the run in all but its algorithm, the seed too.
    """
    wanted, given = _written(algorithm), tuple(given)
    for each in given:
        if _written(str(each.settings["algorithm"])) == wanted:
            return each
    if given:
        theirs = ", ".join(f"'{each.settings['algorithm']}'" for each in given)
        raise InputError(f"the contract compares with '{algorithm}', and against is {theirs}")
    found = _beside(result, wanted)
    if found is None:
        raise InputError(
            f"no run of '{algorithm}' with otherwise the same settings is beside this one: name "
            "one (--against RUN, or against= in Python)"
        )
    return found


def _beside(result: Result, wanted: str) -> Result | None:
    if result.path is None:
        return None
    for folder in sorted(result.path.resolve().parent.iterdir()):
        run = RunDir(folder)
        if not run.clients.exists():
            continue
        try:
            settings = run.settings()
            same = _shared(settings) == _shared(result.settings)
            if same and _written(str(settings.get("algorithm"))) == wanted:
                return Result.load(folder)
        except (DamagedError, InputError):
            continue  # of no use as a reference; whoever needs it learns that none was found
    return None


def _shared(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in FREE}


def _written(algorithm: str) -> str:
    """Return an algorithm with all its settings; what is not fedparity's own, as it is written."""
    if ":" in algorithm:
        return "".join(algorithm.split())
    return complete(read(algorithm, NOTHING))
