"""FedVARP: the last updates of absent clients stand in for them."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Varp(Part):
    r"""Remove the variance that partial participation adds.

    With :math:`y_k` the last update of client k (0 before its first) and :math:`\bar y` their mean,

    .. math:: D_k' = D_k - y_k + \bar y, \qquad D = \sum_{k\in S} a_k D_k', \qquad
              y_k \leftarrow D_k \text{ for } k \in S

    Parameters
    ----------
    scaled
        Remember updates divided by learning rate and steps, for clients of unequal steps.

    Notes
    -----
    Sent: nothing more than FedAvg. The server keeps one update a client, K d floats. The weights
    :math:`a_k` are whatever other parts made of them; where they do not sum to 1 (q-FFL) the mean
    is scaled by their sum. A part that combines updates in its own way, such as FedFV, is given the
    :math:`D_k'` in place of the updates. :math:`\bar y` is weighted as the experiment weighs
    clients, so that full participation is FedAvg.

    Examples
    --------
    >>> Varp().scaled
    False

    References
    ----------
    Jhunjhunwala et al. FedVARP: tackling the variance due to partial client participation.
    UAI 2022.
    """

    scaled: bool = Field(default=False, description="remember updates a step")

    name = "varp"
    paper = "Jhunjhunwala et al. 2022 (FedVARP)"
    equalises = "presence (absent clients count)"
    overwrites = frozenset({"y"})
    conflicts = {
        "weighs_updates": "'varp' remembers updates without the weights of '{other}': use "
        "apply='gradient'"
    }

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"y": x.new_zeros(ctx.population, len(x)), "mean": torch.zeros_like(x)}

    def clean(
        self, deltas: Tensor, w: Tensor, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensors]:
        steps = ctx.steps.to(deltas.dtype)
        updates = deltas / (ctx.lr * steps[:, None]) if self.scaled else deltas
        last = s["y"].index_select(0, ctx.clients)
        change = torch.sub(updates, last, out=last)
        mean = s["mean"] + ctx.shares[ctx.clients] @ change
        corrected = change.add_(s["mean"])
        if self.scaled:
            corrected *= ctx.lr * steps.mean()
        state = {"y": s["y"].index_copy_(0, ctx.clients, updates), "mean": mean}
        return corrected, w, state
