"""A comparison over seeds: a study of algorithms under one set of conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedparity.arguments import checked
from fedparity.data import Federation
from fedparity.imports import Allowed
from fedparity.learning.solver import Solver
from fedparity.studies.study import Study


@checked
def compare(
    data: Federation | str | Mapping[str, Any],
    model: str,
    algorithms: Mapping[str, str] | Sequence[str],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 5,
    grid: Mapping[str, Any] | None = None,
    workers: int | None = None,
    solver: Solver | Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    allowed: Allowed | None = None,
    name: str = "study",
    **settings: Any,
) -> Study:
    """Run algorithms over seeds under the same conditions, and return the study.

    Parameters
    ----------
    data
        A federation, or what an experiment file says under ``data``. A federation is dealt already:
        its seed stays as it is.
    model
        A model's text.
    algorithms, out, seeds, grid, data_dir, allowed, name
        See :class:`~fedparity.Study`.
    workers
        Processes; by default one a core.
    solver
        How clients train.
    settings
        Further settings of an experiment, such as ``rounds=50``.
    """
    told = {**settings, "model": model}
    if isinstance(solver, Solver):
        solver = {k: v for k, v in vars(solver).items() if not k.startswith("_")}
    if solver is not None:
        told["solver"] = dict(solver)
    federation = None
    if not isinstance(data, Federation):
        told["data"] = data
    elif data.recipe is not None:
        told["data"] = dict(data.recipe)
    else:
        federation = data
    study = Study(
        told,
        algorithms,
        out,
        grid=grid,
        seeds=seeds,
        federation=federation,
        data_dir=data_dir,
        allowed=allowed,
        name=name,
    )
    return study.run(workers)
