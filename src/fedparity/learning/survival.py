"""Survival in discrete time: when something happens, of examples some of which left before."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedparity.learning.task import Task


class Survival(Task):
    r"""Likelihood of the interval in which an event falls, from a hazard an interval.

    The model has an output :math:`z_j` for each of J intervals of time, and
    :math:`h_j = \sigma(z_j)` is the probability that the event falls into interval j if it has not
    come before. With s the interval in which the time of an example ends,

    .. math:: \ell = -\sum_{j < s} \ln(1 - h_j) - e \ln h_s

    where e is 1 if the event came and 0 if the example was lost from sight then (censored).

    Notes
    -----
    A target is ``(time, event)``, the time in intervals: divide days by 365 for years, and let the
    federation's ``outputs`` be the number of years. Who lives beyond the last interval survives all
    of them. An example that is censored in interval s tells of the intervals before it only.

    Metric ``status_error`` is the mean of ``(a_j - S_j)^2`` over the intervals at whose end it is
    known whether the example is alive (``a_j`` is 1) or not, with the survival
    ``S_j = prod_{i <= j} (1 - h_i)``. What a client's examples are ranked by is
    :meth:`predictions`.

    References
    ----------
    Gensheimer, Narasimhan. A scalable discrete-time survival model for neural networks. PeerJ 2019.
    """

    name, predicts = "survival", "survival"

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        seen, fell = _intervals(output, target)
        each = F.binary_cross_entropy_with_logits(output, fell, reduction="none")
        return (each * seen).sum(-1)

    def slope(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the derivative of each loss in its outputs."""
        seen, fell = _intervals(output, target)
        return (output.sigmoid() - fell) * seen

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        place = torch.arange(output.shape[-1], dtype=target.dtype)
        alive = place < target[..., :1].floor()
        known = (alive | (target[..., 1:] > 0)).to(output.dtype)
        squares = (alive.to(output.dtype) - survival(output)).square()
        return {"status_error": (squares * known).sum(-1) / known.sum(-1).clamp_min(1)}

    def predictions(self, output: Tensor) -> Tensor:
        """Return the expected number of intervals survived, ``[B]``: the longer, the safer."""
        return survival(output).sum(-1)


def survival(output: Tensor) -> Tensor:
    """Return the probability ``[..., J]`` of surviving each interval, of the outputs of a model."""
    return F.logsigmoid(-output).cumsum(-1).exp()


def _intervals(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of each interval, whether it tells something, and whether the event fell into it."""
    place = torch.arange(output.shape[-1], dtype=target.dtype)
    last, event = target[..., :1].floor(), target[..., 1:]
    fell = (place == last) & (event > 0)
    seen = (place < last) | fell
    return seen.to(output.dtype), fell.to(output.dtype)
