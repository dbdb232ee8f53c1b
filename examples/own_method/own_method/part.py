"""Tempered: a client sends a mean of its new update and what it sent before."""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method import STRICT, Client, Finish, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class Tempered(Part):
    r"""Each client smooths its own updates over the rounds in which it takes part.

    .. math:: s_k \leftarrow \beta s_k + (1 - \beta) D_k, \qquad
              x \leftarrow x + \sum_k w_k s_k

    Parameters
    ----------
    beta
        Share of what was sent before; 0 is FedAvg.

    Notes
    -----
    Sent: nothing more than FedAvg. A client keeps one vector of the model's size; the server
    learns the smoothed update in place of the update.

    Examples
    --------
    >>> sorted(Tempered().hooks)
    ['finish', 'init_client']
    """

    beta: float = Field(default=0.5, ge=0, lt=1, description="share of what was sent before")

    name = "tempered"
    learns = "its smoothed update"

    def neutral(self) -> Part:
        return Tempered(beta=0.0)

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"sent": x.new_zeros(layout.size)}

    def finish(self, delta: Tensor, c: Client) -> Finish:
        sent = self.beta * c.state["sent"] + (1 - self.beta) * delta
        return Finish(sent, state={"sent": sent})
