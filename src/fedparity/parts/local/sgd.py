"""FedSGD: one full gradient a round."""

from __future__ import annotations

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Client, Finish, Part


@dataclass(frozen=True, config=STRICT)
class FedSGD(Part):
    r"""Send the gradient of the whole local loss instead of training.

    .. math:: x \leftarrow x - \eta \sum_k p_k \nabla F_k(x)

    Notes
    -----
    Sent: as FedAvg (a gradient instead of an update). With full participation and weights by size
    this is gradient descent on the pooled data. The learning rate is the solver's; its steps and
    batch are not used, so parts that act on local steps are refused. ``fedsgd+qffl`` is q-FedSGD.

    Examples
    --------
    >>> FedSGD().trains
    False

    References
    ----------
    McMahan et al. Communication-efficient learning of deep networks from decentralized data.
    AISTATS 2017.
    """

    name = "fedsgd"
    paper = "McMahan et al. 2017 (FedSGD)"
    learns = "its full gradient"
    trains = False
    needs = frozenset({"plain_sgd"})
    conflicts = {
        "local_steps": "'fedsgd' takes no local steps, in which '{other}' does its work: leave it "
        "out and train one full-batch step"
    }
    ahead = {
        "finish": "'fedsgd' makes the update that '{other}' looks at: write 'fedsgd' first",
    }

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"grad"})

    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(-c.lr * c.grad)
