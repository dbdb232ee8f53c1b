"""FedDisco: clients whose labels are mixed like the whole count more."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Count, Finish, Part, Tensors, stacked


@dataclass(frozen=True, config=STRICT)
class FedDisco(Part):
    r"""Lower a client's weight by how far its mixture of labels is from the whole.

    .. math:: a_k \propto \max(0,\; w_k - a\, d_k + b)

    with :math:`w_k` the weight it is given (by size, unless the experiment says otherwise) and
    :math:`d_k` the discrepancy between the shares of classes of the client and of the whole.

    Parameters
    ----------
    a
        How much the discrepancy counts.
    b
        Added to every weight; large values are the plain mean.
    metric
        ``kl`` (of the client from the whole), ``l2``, ``l1`` or ``cosine`` (1 minus it).
    whole
        ``uniform``: every class alike; ``clients``: the examples of those who answer, together.
    normalise
        ``auto`` divides discrepancies by their sum over those who answer if they are ``kl``, as the
        authors' code does; ``sum`` always does, ``none`` never.

    Notes
    -----
    Sent up: a count a class, C floats more than FedAvg. The server learns the client's label
    counts. Where all terms are 0 or less, which stops the authors' code, the weights stay as given.
    It makes nothing more equal: who is unlike the others counts less. For classification alone.

    Examples
    --------
    >>> d = torch.tensor([0.2, 0.5, 0.9])
    >>> FedDisco(a=0.5, b=0.1).lowered(torch.tensor([0.5, 0.25, 0.25]), d).numpy().round(4)
    array([0.8333, 0.1667, 0.    ], dtype=float32)

    References
    ----------
    Ye, Xu, Wang, Xu, Chen, Wang. FedDisco: federated learning with discrepancy-aware collaboration.
    ICML 2023.
    """

    a: float = Field(default=0.5, ge=0, description="how much the discrepancy counts")
    b: float = Field(default=0.1, description="added to every weight")
    metric: Literal["kl", "l2", "l1", "cosine"] = "kl"
    whole: Literal["uniform", "clients"] = "uniform"
    normalise: Literal["auto", "sum", "none"] = "auto"

    name = "feddisco"
    paper = "Ye et al. 2023 (FedDisco)"
    learns = "its update and its label counts"
    reports = {"counts": Count()}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"label_counts"})

    @property
    def softens(self) -> str:
        return "lower a"

    def neutral(self) -> Part:
        return FedDisco(a=0.0, b=0.0)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"counts": c.label_counts})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        d = self.discrepancy(up["counts"].double()[ctx.listed])
        each = self.lowered((w / ctx.drawn)[ctx.listed], d.to(w.dtype))
        return torch.zeros_like(w).index_add(0, ctx.listed, each), s

    def discrepancy(self, counts: Tensor) -> Tensor:
        """Return ``d_k`` of these label counts ``[m, C]``."""
        q = counts / counts.sum(1, keepdim=True)
        whole = (
            counts.sum(0) / counts.sum()
            if self.whole == "clients"
            else torch.full_like(q[0], 1 / q.shape[1])
        )
        if self.metric == "kl":
            d = torch.where(q > 0, q * (q / whole).log(), 0).sum(1).clamp_min(0)
        elif self.metric == "cosine":
            d = 1 - torch.nn.functional.cosine_similarity(q, whole[None])
        else:
            d = (q - whole).norm(p=2 if self.metric == "l2" else 1, dim=1)
        summed = self.normalise == "sum" or (self.normalise == "auto" and self.metric == "kl")
        return d / d.sum() if summed and d.sum() > 0 else d

    def lowered(self, w: Tensor, d: Tensor) -> Tensor:
        """Return the weights lowered by discrepancies, or as given where nothing is left."""
        left = (w - self.a * d + self.b).clamp_min(0)
        total = left.sum()
        return left / total if total > 0 else w
