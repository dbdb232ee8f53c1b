"""FedProx: a pull towards the received parameters."""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Affine, Client, Part


@dataclass(frozen=True, config=STRICT)
class Prox(Part):
    r"""Add a proximal term to the local loss, so that clients drift less.

    .. math:: y \leftarrow y - \eta_l (g(y) + \mu (y - x_t))

    Parameters
    ----------
    mu
        Strength of the pull. The step is stable for ``lr * mu < 2``.

    Notes
    -----
    Sent: nothing more than FedAvg. The server learns nothing more. The term covers trainable
    parameters only; weight decay pulls to zero, this pulls to ``x_t``, and the two are separate.
    The paper pairs it with sampling by size and a plain mean: that is the experiment's
    ``sampling="size"``.

    Examples
    --------
    >>> import torch
    >>> c = Client(0.1, 1, None, anchor=torch.tensor([1.0, 2.0]))
    >>> Prox(mu=0.5).grad(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0]), c)
    tensor([1., 1.])

    References
    ----------
    Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
    """

    mu: float = Field(default=0.1, ge=0, description="strength of the pull")

    name = "prox"
    paper = "Li et al. 2020 (FedProx)"

    @property
    def pull(self) -> float:
        return self.mu

    def neutral(self) -> Part:
        return Prox(mu=0.0)

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return g + self.mu * (x - c.anchor)

    def affine(self, c: Client) -> Affine:
        return Affine(pull=self.mu, shift=-self.mu * c.anchor)
