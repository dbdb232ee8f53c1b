"""APFL: a model of one's own, trained for its mixture with the shared one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import SHARED, STRICT, Client, Context, Finish, Part, Tensors


@dataclass(frozen=True, config=STRICT)
class APFL(Part):
    r"""Train a personal model so that its mixture with the shared one serves the client.

    .. math::
        v_k \leftarrow v_k - \eta\, \alpha_k\, g_k(\alpha_k v_k + (1 - \alpha_k) y_k), \qquad
        y_k \leftarrow y_k - \eta\, g_k(y_k)

    on the same batches, both from where they stood before the step; :math:`y_k`, which starts at
    :math:`x_t`, is sent, and a client is evaluated with :math:`\alpha_k v_k + (1 - \alpha_k) x`.

    Parameters
    ----------
    alpha
        The share of the personal model. 0 is FedAvg, 1 trains each client alone.
    adaptive
        Move each client's share once a round along the slope of its loss,
        :math:`\alpha_k \leftarrow \mathrm{clip}(\alpha_k - \eta \langle v_k - x_t,
        \nabla F_k(\alpha_k v_k + (1 - \alpha_k) x_t) \rangle, 0, 1)`; it begins at ``alpha``.

    Notes
    -----
    Sent: nothing more than FedAvg. The server learns nothing more, and its model is FedAvg's for
    any ``alpha``. A round computes twice the steps; an adaptive share costs one more gradient over
    the client's training examples, of which the authors' code takes the first batch's, and counts
    from the next round on. A personal model begins at the initial parameters. A client that has
    never taken part is evaluated with the shared model.

    Examples
    --------
    >>> APFL(alpha=0.25).mixed(torch.tensor([4.0]), torch.tensor([0.0]), torch.tensor(0.25))
    tensor([1.])

    References
    ----------
    Deng, Kamani, Mahdavi. Adaptive personalized federated learning. arXiv:2003.13461, 2020.
    """

    alpha: float = Field(default=0.5, ge=0, le=1, description="share of the personal model")
    adaptive: bool = Field(default=False, description="let each client's share follow its loss")

    name = "apfl"
    paper = "Deng et al. 2020 (APFL)"
    equalises = "accuracy, by a model for each client"
    conflicts = {
        "own_model": "'apfl' and '{other}' would each give clients a model of their own: keep one",
        "own_layers": "'apfl' gives clients a whole model of their own, in which the layers of "
        "'{other}' would be lost: keep one",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"own_model"})

    @property
    def points(self) -> Mapping[str, frozenset[str]]:
        return {"mixture": frozenset({"grad"})} if self.adaptive else {}

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.adaptive else super().hooks - {"at"}

    def neutral(self) -> Part:
        return APFL(alpha=0.0)

    def validate(self, ctx: Context) -> None:
        if ctx.layout.buffers:
            raise InputError(
                "'apfl' would evaluate mixed models with BatchNorm statistics of the shared one: "
                "use a model without BatchNorm"
            )

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"own": x, "alpha": x.new_full((), self.alpha), "met": x.new_zeros(())}

    def at(self, c: Client) -> Tensors:
        return {"mixture": self.mixed(c.state["own"], c.x, c.state["alpha"])}

    def tracks(self, c: Client) -> Tensors:
        return {"own": c.state["own"]}

    def look(self, y: Tensor, shared: Tensor, c: Client) -> Tensor:
        return self.mixed(y, shared, c.state["alpha"])

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return g if c.track == SHARED else c.state["alpha"] * g

    def finish(self, delta: Tensor, c: Client) -> Finish:
        alpha = c.state["alpha"]
        if self.adaptive:
            slope = (c.state["own"] - c.x) @ c.points["mixture"]["grad"]
            alpha = (alpha - c.lr * slope).clamp(0, 1)
        met = torch.ones_like(c.state["met"])
        return Finish(delta, state={"own": c.ends["own"], "alpha": alpha, "met": met})

    def personal(self, x: Tensor, c: Client) -> Tensor:
        mixed = self.mixed(c.state["own"], x, c.state["alpha"])
        return torch.where(c.state["met"] > 0, mixed, x)

    def mixed(self, own: Tensor, shared: Tensor, alpha: Tensor) -> Tensor:
        """Return the mixture of two models."""
        return alpha * own + (1 - alpha) * shared
