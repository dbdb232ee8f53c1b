"""What an author of methods needs: a Part, what its hooks see, and what they return."""

from fedparity.method.bases import TellsLoss
from fedparity.method.client import SHARED, Client
from fedparity.method.context import Context, Grouping
from fedparity.method.facts import AFTER, BEFORE, FACTS, ByGroup, Fact
from fedparity.method.hints import Affine, stacked
from fedparity.method.messages import Reply, Tensors
from fedparity.method.part import HOOKS, STRICT, Part, Weights
from fedparity.method.privacy import Guarantee
from fedparity.method.reports import Count, Gap, Loss, Norm, Report, Share, Vector
from fedparity.method.returned import Finish, Losses, LossesAt, Mixture, Plan, Served

__all__ = [
    "AFTER",
    "BEFORE",
    "FACTS",
    "HOOKS",
    "SHARED",
    "STRICT",
    "Affine",
    "ByGroup",
    "Client",
    "Context",
    "Count",
    "Fact",
    "Finish",
    "Gap",
    "Grouping",
    "Guarantee",
    "Loss",
    "Losses",
    "LossesAt",
    "Mixture",
    "Norm",
    "Part",
    "Plan",
    "Reply",
    "Report",
    "Served",
    "Share",
    "TellsLoss",
    "Tensors",
    "Vector",
    "Weights",
    "stacked",
]
