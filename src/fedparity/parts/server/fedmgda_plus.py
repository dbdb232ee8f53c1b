"""FedMGDA+: the shortest mixture of updates of length 1, near the weights given."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors
from fedparity.toolbox.products import gram_matrix
from fedparity.toolbox.shortest import min_norm


@dataclass(frozen=True, config=STRICT)
class FedMGDAPlus(Part):
    r"""Go where no client's loss rises, as far as weights near the given ones allow.

    With :math:`\hat D_k = D_k / \|D_k\|` and :math:`a` the weights given,

    .. math:: x \leftarrow x + \eta s \sum_k \lambda_k \hat D_k, \qquad
              \lambda = \arg\min \Big\|\sum_k \lambda_k \hat D_k\Big\|^2

    over the simplex with :math:`|\lambda_k - a_k| \le \epsilon`.

    Parameters
    ----------
    eps
        :math:`\epsilon`, how far a weight may move. 0 averages the updates of length 1; 1 is MGDA:
        whatever weights are given, the direction is the shortest, which descends for every client.
    length
        The step :math:`s`: ``mean`` is the mean length of the updates, so that the normalisation
        does not change it; ``unit`` is 1, which leaves it to :math:`\eta`.
    eta
        :math:`\eta`, a factor on the step.

    Notes
    -----
    Sent: nothing more than FedAvg. The server needs individual updates, and solves a quadratic
    program in their products, in float64; those of large updates are as precise as the updates are,
    and their mixture as FedAvg's mean. The centre of the box is whatever weights the experiment or
    other parts give; the authors' solver has the uniform ones, two other codes those by size. The
    paper's step is a constant that has to be tuned with a decay (``length="unit"``). An update of
    zero has no direction and is left out; where all are zero, or the shortest mixture is, the model
    stays.

    Examples
    --------
    >>> FedMGDAPlus(eps=1.0).own_weights
    'uniform'

    References
    ----------
    Hu, Shaloudegi, Zhang, Yu. Federated learning meets multi-objective optimization. IEEE
    Transactions on Network Science and Engineering, 2022.
    """

    eps: float = Field(default=0.1, ge=0, le=1, description="how far a weight may move")
    length: Literal["mean", "unit"] = "mean"
    eta: float = Field(default=1.0, gt=0, description="factor on the step")

    name = "fedmgda_plus"
    paper = "Hu et al. 2022 (FedMGDA+)"
    equalises = "descent (no client's loss rises)"
    conflicts = {
        "no_distribution": "'fedmgda_plus' looks for weights near a distribution, and those of "
        "'{other}' are none: keep one"
    }

    @property
    def ignores_weights(self) -> bool:
        return self.eps == 1

    @property
    def softens(self) -> str:
        return "lower eps"

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        places = ctx.listed.numpy()
        gram = gram_matrix(deltas.numpy(), rough=True)[np.ix_(places, places)]
        lengths = np.sqrt(gram.diagonal())
        some = lengths > 0
        if not some.any():
            return torch.zeros_like(deltas[0]), s
        given = ctx.uniform if self.ignores_weights else w
        centre = np.where(some, (given.double() / ctx.drawn)[places].numpy(), 0.0)
        if not centre.any():  # all weight lies on clients that did not move
            return torch.zeros_like(deltas[0]), s
        each = lengths[some]
        chosen = min_norm(
            gram[np.ix_(some, some)] / np.outer(each, each),
            centre[some] / centre.sum(),
            self.eps,
        )
        step = self.eta * (lengths.mean() if self.length == "mean" else 1.0)
        coefficients = np.zeros(len(deltas))
        np.add.at(coefficients, places[some], step * chosen / each)
        return torch.from_numpy(coefficients).to(deltas.dtype) @ deltas, s
