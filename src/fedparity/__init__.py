"""fedparity: train one model over many unlike clients, and show who gains and who pays.

A public name is imported when it is first used, so that the command line can answer a question or a
mistake without waiting for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedparity import models as models
    from fedparity.core.algorithm import Algorithm as Algorithm
    from fedparity.core.conditions import Stop as Stop
    from fedparity.core.experiment import Experiment as Experiment
    from fedparity.core.file import load as load
    from fedparity.core.file import load_model as load_model
    from fedparity.core.file import resume as resume
    from fedparity.core.part import Client as Client
    from fedparity.core.part import Context as Context
    from fedparity.core.part import Finish as Finish
    from fedparity.core.part import Part as Part
    from fedparity.core.part import Plan as Plan
    from fedparity.core.part import stacked as stacked
    from fedparity.core.result import Result as Result
    from fedparity.core.solver import Solver as Solver
    from fedparity.core.task import Classification as Classification
    from fedparity.core.task import NextToken as NextToken
    from fedparity.core.task import Regression as Regression
    from fedparity.core.task import Task as Task
    from fedparity.data import IID as IID
    from fedparity.data import ByClass as ByClass
    from fedparity.data import Dataset as Dataset
    from fedparity.data import Dirichlet as Dirichlet
    from fedparity.data import Federation as Federation
    from fedparity.data import Natural as Natural
    from fedparity.data import Shards as Shards
    from fedparity.data import datasets as datasets
    from fedparity.errors import ClientError as ClientError
    from fedparity.errors import FedparityError as FedparityError
    from fedparity.errors import InputError as InputError
    from fedparity.metrics import ClientFrame as ClientFrame
    from fedparity.recipes import algorithm as algorithm

_HOME = {
    "core.algorithm": ["Algorithm"],
    "core.conditions": ["Stop"],
    "core.experiment": ["Experiment"],
    "core.file": ["load", "load_model", "resume"],
    "core.part": ["Client", "Context", "Finish", "Part", "Plan", "stacked"],
    "core.result": ["Result"],
    "core.solver": ["Solver"],
    "core.task": ["Classification", "NextToken", "Regression", "Task"],
    "data": ["ByClass", "Dataset", "Dirichlet", "Federation", "IID", "Natural", "Shards"],
    "data.datasets": ["datasets"],
    "errors": ["ClientError", "FedparityError", "InputError"],
    "metrics": ["ClientFrame"],
    "models": ["models"],
    "recipes": ["algorithm"],
}
_MODULE_OF = {name: f"fedparity.{home}" for home, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedparity' has no attribute '{name}'")
    module = import_module(_MODULE_OF[name])
    value = globals()[name] = (
        module if module.__name__.endswith(f".{name}") else getattr(module, name)
    )
    return value


def __dir__() -> list[str]:
    return __all__
