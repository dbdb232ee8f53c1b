"""FedNova: updates are divided by how far a client could have gone."""

from __future__ import annotations

from itertools import dropwhile

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import STRICT, Context, Part, Tensors


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
    authors' recursion for it counts one addition a step twice. So is clipping with one: the clipped
    sum of both is no fixed coefficient times the gradient. Server momentum is the part
    ``momentum``.

    Weights of other parts are kept where they are a distribution, over which steps have a mean.
    With ``eagle(apply="gradient")`` the direction is :math:`\tau_{eff} \frac1K\sum_k v_k \bar g_k`,
    EAGLE's gradient of the clients' mean gradients :math:`\bar g_k`.

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
    conflicts = {
        "fits_step": "'nova' would rescale the updates to which '{other}' has fitted its step: "
        "keep one",
        "weighs_updates": "'nova' averages steps by the weights, and those of '{other}' are no "
        "distribution: use {other}(apply=gradient)",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"no_distribution"})

    def validate(self, ctx: Context) -> None:
        if ctx.solver.optimizer != "sgd":
            raise InputError("'nova' needs SGD on the clients: its normalisation has no Adam form")
        if ctx.solver.momentum and proximal(ctx):
            raise InputError("'nova' takes local momentum or 'prox', not both")
        if ctx.solver.clip is not None and proximal(ctx):
            raise InputError(
                "'nova' cannot count gradients that are clipped with the pull of 'prox' in them: "
                "leave clip or 'prox' out"
            )
        if proximal(ctx) and any("weighs_gradients" in p.traits for p in _behind_prox(ctx)):
            raise InputError(
                "'nova' knows one strength of 'prox', which a weight on the gradient makes the "
                "client's own: write 'prox' behind it"
            )

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        steps, mu = ctx.steps.double(), proximal(ctx)
        reach = coefficients(steps, ctx.solver.momentum, ctx.lr * mu)
        weights = w.double()
        effective = weights @ (steps if mu else reach)
        return (weights * effective / reach).to(w.dtype), s


def _behind_prox(ctx: Context) -> list[Part]:
    """Return the parts behind the first proximal term: what they do to gradients, it meets too."""
    return list(dropwhile(lambda part: not part.pull, ctx.parts))


def proximal(ctx: Context) -> float:
    """Return the strength of the algorithm's proximal term, 0 if it has none."""
    return sum(part.pull for part in ctx.parts)


def coefficients(steps: Tensor, momentum: float, shrink: float) -> Tensor:
    """Return A_k for clients of these steps; ``shrink`` is the learning rate times mu."""
    if shrink:
        return (1 - torch.pow(torch.full_like(steps, 1 - shrink), steps)) / shrink
    if momentum:
        powers = torch.pow(torch.full_like(steps, momentum), steps)
        return (steps - momentum * (1 - powers) / (1 - momentum)) / (1 - momentum)
    return steps
