"""fedparity: train one model over many unlike clients, and show who gains and who pays.

A public name is imported when it is first used, so that the command line can answer a question or a
mistake without waiting for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedparity import method as method
    from fedparity import testing as testing
    from fedparity import toolbox as toolbox
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
    from fedparity.fronts import Frontier as Frontier
    from fedparity.fronts import frontier as frontier
    from fedparity.joining import Coalitions as Coalitions
    from fedparity.joining import coalitions as coalitions
    from fedparity.learning import models as models
    from fedparity.learning.outcomes import Binary as Binary
    from fedparity.learning.outcomes import MultiLabel as MultiLabel
    from fedparity.learning.solver import Solver as Solver
    from fedparity.learning.survival import Survival as Survival
    from fedparity.learning.task import Classification as Classification
    from fedparity.learning.task import NextToken as NextToken
    from fedparity.learning.task import Regression as Regression
    from fedparity.learning.task import Task as Task
    from fedparity.method import Client as Client
    from fedparity.method import Context as Context
    from fedparity.method import Finish as Finish
    from fedparity.method import Part as Part
    from fedparity.method import Plan as Plan
    from fedparity.method.algorithm import Algorithm as Algorithm
    from fedparity.metrics import ClientFrame as ClientFrame
    from fedparity.metrics import Metric as Metric
    from fedparity.recipes import algorithm as algorithm
    from fedparity.records.model import load_model as load_model
    from fedparity.records.result import Result as Result
    from fedparity.run import sampling as sampling
    from fedparity.run.conditions import Stop as Stop
    from fedparity.run.experiment import Experiment as Experiment
    from fedparity.run.file import load as load
    from fedparity.run.file import resume as resume
    from fedparity.studies import Study as Study
    from fedparity.studies import compare as compare
    from fedparity.tuning import Tuned as Tuned
    from fedparity.tuning import tune as tune

_HOME = {
    "fronts": ["Frontier", "frontier"],
    "tuning": ["Tuned", "tune"],
    "joining": ["Coalitions", "coalitions"],
    "testing": ["testing"],
    "toolbox": ["toolbox"],
    "method.algorithm": ["Algorithm"],
    "run.conditions": ["Stop"],
    "run.experiment": ["Experiment"],
    "run.file": ["load", "resume"],
    "run.sampling": ["sampling"],
    "records.model": ["load_model"],
    "method": ["Client", "Context", "Finish", "Part", "Plan", "method"],
    "records.result": ["Result"],
    "studies": ["Study", "compare"],
    "learning.outcomes": ["Binary", "MultiLabel"],
    "learning.solver": ["Solver"],
    "learning.survival": ["Survival"],
    "learning.task": ["Classification", "NextToken", "Regression", "Task"],
    "data": ["ByClass", "Dataset", "Dirichlet", "Federation", "IID", "Natural", "Shards"],
    "data.datasets": ["datasets"],
    "errors": ["ClientError", "FedparityError", "InputError"],
    "metrics": ["ClientFrame", "Metric"],
    "learning.models": ["models"],
    "recipes": ["algorithm"],
}
_MODULE_OF = {name: f"fedparity.{home}" for home, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedparity")
    if name not in _MODULE_OF:
        from fedparity.errors import absent

        raise absent("fedparity", name, __all__)
    module = import_module(_MODULE_OF[name])
    value = globals()[name] = (
        module if module.__name__.endswith(f".{name}") else getattr(module, name)
    )
    return value


def __dir__() -> list[str]:
    return __all__
