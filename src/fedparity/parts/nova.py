"""FedNova: updates are divided by how far a client could have gone."""

from __future__ import annotations

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.core.part import STRICT, Context, Part, Tensors
from fedparity.errors import InputError
from fedparity.parts.prox import Prox


@dataclass(frozen=True, config=STRICT)
class Nova(Part):
    r"""Remove the extra weight of clients that take more steps.

    .. math:: x \leftarrow x + \tau_{eff} \sum_k p_k \frac{D_k}{A_k}, \qquad
              \tau_{eff} = \sum_k p_k \tau'_k

    where :math:`A_k` is the sum of the coefficients with which the local solver adds gradients up:
    the number of steps :math:`\tau_k` for plain SGD,
    :math:`[\tau - \rho(1-\rho^\tau)/(1-\rho)]/(1-\rho)` with momentum :math:`\rho`,
    :math:`[1-(1-\eta\mu)^\tau]/(\eta\mu)` with a proximal term; :math:`\tau'_k = A_k`, and
    :math:`\tau_k` in the proximal case.

    Notes
    -----
    Sent up: nothing that the server does not know from the settings (a real deployment sends two
    floats, :math:`A_k` and :math:`\tau_k`). Momentum together with a proximal term is refused: the
    authors' recursion for it counts one addition a step twice. Server momentum is the part
    ``momentum``.

    Examples
    --------
    >>> Nova().hooks
    frozenset({'weigh'})

    References
    ----------
    Wang et al. Tackling the objective inconsistency problem in heterogeneous federated
    optimization. NeurIPS 2020.
    """

    name = "nova"
    paper = "Wang et al. 2020 (FedNova)"

    def validate(self, ctx: Context) -> None:
        if ctx.solver.optimizer != "sgd":
            raise InputError("'nova' needs SGD on the clients: its normalisation has no Adam form")
        if ctx.solver.momentum and proximal(ctx):
            raise InputError("'nova' takes local momentum or 'prox', not both")

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        steps, mu = ctx.steps.double(), proximal(ctx)
        reach = coefficients(steps, ctx.solver.momentum, ctx.lr * mu)
        weights = w.double()
        effective = weights @ (steps if mu else reach)
        return (weights * effective / reach).to(w.dtype), s


def proximal(ctx: Context) -> float:
    """Return the strength of the algorithm's proximal term, 0 if it has none."""
    return sum(part.mu for part in ctx.parts if isinstance(part, Prox))


def coefficients(steps: Tensor, momentum: float, shrink: float) -> Tensor:
    """Return A_k for clients of these steps; ``shrink`` is the learning rate times mu."""
    if shrink:
        return (1 - torch.pow(torch.full_like(steps, 1 - shrink), steps)) / shrink
    if momentum:
        powers = torch.pow(torch.full_like(steps, momentum), steps)
        return (steps - momentum * (1 - powers) / (1 - momentum)) / (1 - momentum)
    return steps
