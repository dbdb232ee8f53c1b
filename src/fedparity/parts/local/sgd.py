"""FedSGD: one full gradient a round."""

from __future__ import annotations

from itertools import takewhile

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import AFTER, STRICT, Client, Context, Finish, Part

STEPS = frozenset({"start", "loss", "second", "grad"})
"""Hooks of the local training loop, which does not run here."""
STEPPED: frozenset[str] = AFTER - {"end_loss"}
"""Facts of its steps."""


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

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"grad"})

    def validate(self, ctx: Context) -> None:
        idle = [part.name for part in ctx.parts if part.hooks & STEPS or part.reads & STEPPED]
        if idle:
            raise InputError(
                f"'fedsgd' takes no local steps, in which '{idle[0]}' does its work: leave it out "
                "and train one full-batch step"
            )
        before = takewhile(lambda part: part is not self, ctx.parts)
        early = [part.name for part in before if "finish" in part.hooks]
        if early:
            raise InputError(
                f"'fedsgd' makes the update that '{early[0]}' looks at: write 'fedsgd' first"
            )

    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(-c.lr * c.grad)
