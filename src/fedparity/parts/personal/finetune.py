"""Local fine-tuning: the honest baseline of every personalised method."""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass

from fedparity.method import STRICT, Part


@dataclass(frozen=True, config=STRICT)
class FineTune(Part):
    r"""Evaluate each client with the shared model after a few local steps on its training data.

    .. math:: v_k = x - \eta \sum_{j=1}^{s} g_k(y_j), \qquad y_1 = x,
        \quad y_{j+1} = y_j - \eta\, g_k(y_j)

    Parameters
    ----------
    steps
        Local steps :math:`s`, of the experiment's batch, solver and rate of the round. 0 is FedAvg.

    Notes
    -----
    Sent: nothing more than FedAvg; the server learns nothing more, and its model is FedAvg's (or
    that of the parts beside it). Nothing is kept: the steps are taken anew at every evaluation, on
    batches of their own address, so they cost ``steps`` steps of every client and not of the cohort
    alone. Corrections of the gradient by other parts (``prox``, ``scaffold``) do not act on them.
    BatchNorm statistics follow the steps.

    Examples
    --------
    >>> FineTune(steps=3).tuning
    3

    References
    ----------
    Yu, Bagdasaryan, Shmatikov. Salvaging federated learning by local adaptation. arXiv:2002.04758,
    2020.
    """

    steps: int = Field(default=10, ge=0, description="local steps before an evaluation")

    name = "finetune"
    paper = "Yu et al. 2020 (local fine-tuning)"
    equalises = "accuracy, by a model for each client"

    @property
    def tuning(self) -> int:
        return self.steps

    def neutral(self) -> Part:
        return FineTune(steps=0)
