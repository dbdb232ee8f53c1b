"""fedparity: train one model over many unlike clients, and show who gains and who pays."""

from fedparity import models
from fedparity.core.algorithm import Algorithm
from fedparity.core.experiment import Experiment, Stop
from fedparity.core.file import load, resume
from fedparity.core.part import Client, Context, Finish, Part, Plan
from fedparity.core.result import Result
from fedparity.core.solver import Solver
from fedparity.core.task import Classification, NextToken, Regression, Task
from fedparity.data import (
    IID,
    ByClass,
    Dataset,
    Dirichlet,
    Federation,
    Natural,
    Shards,
    datasets,
)
from fedparity.errors import ClientError, FedparityError, InputError
from fedparity.metrics import ClientFrame
from fedparity.recipes import algorithm

__all__ = [
    "IID",
    "Algorithm",
    "ByClass",
    "Classification",
    "Client",
    "ClientError",
    "ClientFrame",
    "Context",
    "Dataset",
    "Dirichlet",
    "Experiment",
    "Federation",
    "FedparityError",
    "Finish",
    "InputError",
    "Natural",
    "NextToken",
    "Part",
    "Plan",
    "Regression",
    "Result",
    "Shards",
    "Solver",
    "Stop",
    "Task",
    "algorithm",
    "datasets",
    "load",
    "models",
    "resume",
]
