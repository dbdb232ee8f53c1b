"""An experiment as plain values: its file, its record, and what a resumed run must agree with."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedparity.learning.frozen import digest_of, fingerprint
from fedparity.learning.task import Task
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric
from fedparity.recipes import complete
from fedparity.records.rundir import LSTAR
from fedparity.run.conditions import Conditions
from fedparity.run.given import Told, digest

if TYPE_CHECKING:
    from fedparity.run.experiment import Experiment

INLINE = 200
"""Clients whose given L* is written into the experiment file."""


def describe(experiment: Experiment) -> dict[str, Any]:
    """Return everything needed to run the experiment again, as plain values."""
    assert isinstance(experiment.algorithm, Algorithm)
    assert isinstance(experiment.task, Task)
    recipe, file = experiment.federation.recipe, experiment.conditions.pretrained
    whole, fields = experiment.federation.whole, experiment.federation.fields
    solver = {k: v for k, v in vars(experiment.solver).items() if not k.startswith("_")}
    return {
        **({"data": dict(recipe)} if recipe is not None else {}),
        "task": experiment.task.text,
        **({"model": experiment.task.model_text} if experiment.task.model_text is not None else {}),
        "algorithm": complete(experiment.algorithm),
        "solver": solver,
        **{name: getattr(experiment.conditions, name) for name in Conditions.__dataclass_fields__},
        "lstar": _told_lstar(experiment),
        **(
            {"stop": {"metric": experiment.stop.metric, "patience": experiment.stop.patience}}
            if experiment.stop
            else {}
        ),
        **(
            {"metrics": [m.text for m in experiment.setup.metrics]}
            if experiment.setup.metrics
            else {}
        ),
        "engine": experiment.choice.name,
        "record": {
            "written_as": experiment.algorithm.text,
            "weights": experiment.weights,
            **({"metrics": _told(experiment.setup.metrics)} if experiment.setup.metrics else {}),
            **({"softens": soft} if (soft := experiment.algorithm.softens) else {}),
            "engine_reason": experiment.choice.reason,
            "federation": experiment.federation.fingerprint,
            **({"unseen_clients": len(whole) - len(experiment.federation)} if whole else {}),
            "clients": len(experiment.federation),
            "inputs": list(experiment.federation.shape),
            **({"fields": [[n, list(s), w] for n, s, w in fields]} if fields else {}),
            "outputs": experiment.federation.outputs,
            **({"classes": list(classes)} if (classes := experiment.federation.classes) else {}),
            **({"predicts": experiment.task.predicts} if experiment.task.predicts else {}),
            **({} if experiment.federation.train.x.is_floating_point() else {"whole_inputs": True}),
            "parameters": experiment.setup.layout.size,
            "device": experiment.setup.device,
            **({"pretrained": digest_of(file)} if file else {}),
            "command": _command(experiment.choice.name),
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in ("fedparity", "torch", "numpy")},
        },
    }


def _told_lstar(experiment: Experiment) -> Told:
    """Return the rule or the numbers; of many clients the file that the run keeps them in."""
    told = experiment.conditions.lstar
    return told if isinstance(told, str) or len(told) <= INLINE else LSTAR


def identity(experiment: Experiment) -> dict[str, Any]:
    """Return what a run that is resumed must agree with."""
    told = experiment.describe()
    free = {"rounds", "evaluate_every", "checkpoint_every", "chunk", "record", "data", "model"}
    free |= {"metrics", "predictions", "personal", "device"}
    file, whole = experiment.conditions.pretrained, experiment.federation.whole
    still = fingerprint(experiment.setup.module)  # a checkpoint holds what moves
    return {
        "federation": experiment.federation.fingerprint,
        "parameters": experiment.setup.layout.size,
        **{key: value for key, value in told.items() if key not in free},
        "sampling": experiment.drawing.identity,
        "lstar": digest(experiment.conditions.lstar),
        **({} if whole is None else {"federation with unseen clients": whole.fingerprint}),
        **({} if still is None else {"digest of what is frozen": still}),
        **({"sha256 of the pretrained file": digest_of(file)} if file else {}),
    }


def _told(metrics: Sequence[Metric]) -> dict[str, dict[str, str]]:
    """Return what the record tells of metrics."""
    return {metric.name: metric.meaning._asdict() for metric in metrics}


def _command(engine: str) -> list[str]:
    """Return the command line; Flower starts its apps with a token, which is nobody's business."""
    if engine == "flower":
        return ["flwr", "run"]
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


@cache
def _version(package: str) -> str:
    """Return the version of a package; it is read from a file, which short runs would notice."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
