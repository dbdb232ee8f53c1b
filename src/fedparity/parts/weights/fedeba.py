"""FedEBA: weights by a maximum-entropy softmax of the losses."""

from __future__ import annotations

import math
from typing import Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Context, Finish, Part, Tensors, stacked
from fedparity.parts.weights.entropy import Entropy


@dataclass(frozen=True, config=STRICT)
class FedEBA(Entropy):
    r"""Weight clients by a maximum-entropy softmax of their losses.

    .. math:: x \leftarrow x + \sum_k a_k D_k, \qquad a_k \propto q_k \exp(F_k/\tau)

    Parameters
    ----------
    signal
        ``post`` uses the loss of the trained local model on its own data (the paper's algorithms),
        ``pre`` that of the received model: how badly it serves the client.
    tau, prior, floor, anneal, kappa
        See :class:`Entropy`.

    Notes
    -----
    Sent up: one float more than FedAvg, the loss. The server learns it. With ``signal="pre"`` this
    is client-level TERM with t = 1/tau. The printed annealing divides by the total number of
    rounds; we use the current one. The temperature is clamped after annealing.

    Examples
    --------
    >>> FedEBA().tau
    0.1

    References
    ----------
    Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and effective federated learning via
    entropy-based model. arXiv:2301.12407, 2023.
    """

    signal: Literal["post", "pre"] = "post"

    name = "fedeba"
    paper = "Wang et al. 2023 (FedEBA)"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"end_loss" if self.signal == "post" else "loss"})

    def neutral(self) -> Part:
        return FedEBA(tau=math.inf)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.end_loss if self.signal == "post" else c.loss})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        return self.softmax(up["loss"], ctx).to(w.dtype), s
