"""All clients alike, whatever their size."""

from __future__ import annotations

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Uniform(Part):
    r"""Take the plain mean, :math:`x \leftarrow x + \frac1m\sum_k D_k`, in any experiment.

    Notes
    -----
    Sent: nothing more than FedAvg. For recipes of papers that average uniformly; elsewhere the
    experiment's ``weighting`` says it.

    Examples
    --------
    >>> Uniform().hooks
    frozenset({'weigh'})
    """

    name = "uniform"
    paper = "-"
    replaces = frozenset({"weigh"})

    def neutral(self) -> Part:
        return Uniform()

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return ctx.uniform, s
