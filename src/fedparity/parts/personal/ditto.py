"""Ditto: a model of one's own beside the shared one, pulled towards it."""

from __future__ import annotations

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import SHARED, STRICT, Affine, Client, Context, Finish, Part, Tensors, stacked


@dataclass(frozen=True, config=STRICT)
class Ditto(Part):
    r"""Train a personal model beside the shared one, with a pull towards the received parameters.

    .. math::
        v_k \leftarrow v_k - \eta (g_k(v_k) + \lambda (v_k - x_t)), \qquad
        y_k \leftarrow y_k - \eta\, g_k(y_k)

    on the same batches; :math:`y_k`, which starts at :math:`x_t`, is sent, and a client is
    evaluated with its :math:`v_k`.

    Parameters
    ----------
    lam
        Strength of the pull. 0 trains each client alone, a large one (with ``lr * lam <= 1``) gives
        everyone the shared model. The personal step is stable for ``lr * lam < 2``.

    Notes
    -----
    Sent: nothing more than FedAvg. The server learns nothing more, and its model is FedAvg's for
    any ``lam``. A round computes twice the steps. The pull is to the received parameters, which
    stay where they are: so the authors' order (both steps batch by batch, the personal one first)
    and one loop after the other give the same numbers. A personal model begins at the initial
    parameters. A client that has never taken part has none and is evaluated with the shared model.
    The authors' option to choose ``lam`` a client by validation loss is left out.

    Examples
    --------
    >>> c = Client(0.1, 1, None, x=torch.tensor([1.0, 2.0]))
    >>> c.track = "own"
    >>> Ditto(lam=0.5).grad(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0]), c)
    tensor([1., 1.])

    References
    ----------
    Li, Hu, Beirami, Smith. Ditto: fair and robust federated learning through personalization.
    ICML 2021.
    """

    lam: float = Field(default=1.0, ge=0, description="strength of the pull")

    name = "ditto"
    paper = "Li et al. 2021 (Ditto)"
    equalises = "accuracy, by a model for each client"
    conflicts = {
        "own_model": "'ditto' and '{other}' would each give clients a model of their own: keep one",
        "own_layers": "'ditto' gives clients a whole model of their own, in which the layers of "
        "'{other}' would be lost: keep one",
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"own_model"})

    def neutral(self) -> Part:
        return Ditto(lam=0.0)

    def validate(self, ctx: Context) -> None:
        if ctx.layout.buffers:
            raise InputError(
                "'ditto' would evaluate personal models with BatchNorm statistics of the shared "
                "one: use a model without BatchNorm"
            )
        if ctx.solver.plain and ctx.lr * self.lam >= 2:
            raise InputError(
                f"'ditto' with lam={self.lam:g} and lr={ctx.lr:g} diverges: lower one of them "
                "until lr * lam < 2"
            )

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        return {"own": x, "met": x.new_zeros(())}

    def tracks(self, c: Client) -> Tensors:
        return {"own": c.state["own"]}

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return g if c.track == SHARED else g + self.lam * (x - c.x)

    def affine(self, c: Client) -> Affine:
        if c.track == SHARED:
            return Affine()
        return Affine(pull=self.lam, shift=-self.lam * c.x)

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, state={"own": c.ends["own"], "met": torch.ones_like(c.state["met"])})

    def personal(self, x: Tensor, c: Client) -> Tensor:
        return torch.where(c.state["met"] > 0, c.state["own"], x)
