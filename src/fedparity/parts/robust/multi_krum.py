"""Multi-Krum: only updates with near neighbours are averaged."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import STRICT, Context, Part, Tensors
from fedparity.toolbox.products import Numbers, gram_matrix


@dataclass(frozen=True, config=STRICT)
class MultiKrum(Part):
    r"""Leave out the updates that are farthest from their neighbours.

    With :math:`f` the number of faulty clients, each update's score is the sum of its
    :math:`m - f - 2` smallest squared distances to others; the :math:`m - f` of least score are
    kept,

    .. math:: a_k \leftarrow \frac{A\, a_k}{\sum_{j\,\text{kept}} a_j} \text{ if kept, else } 0,
              \qquad A = \textstyle\sum_k a_k

    Parameters
    ----------
    faulty
        Share of the round's clients that may be faulty; :math:`f` is rounded down. 0 keeps all.
    single
        Keep only the update of least score (Krum).

    Notes
    -----
    Sent: nothing more than FedAvg. The server needs individual updates. Scores count every client
    alike; those who are kept share the weight as the weights given say, or evenly where these are
    all zero; where one alone is kept, weights have no say. Buffers follow the weights. The
    guarantee of the paper asks for :math:`m \ge 2f + 3` clients; at least one neighbour is always
    looked at. Of equal scores the one nearer to all others is kept.

    The price: a minority whose data are unlike the others' looks like a fault, and is left out
    round after round. Look at the worst client, not at the mean.

    Examples
    --------
    >>> updates = np.array([[1.0], [1.1], [0.9], [7.0]])
    >>> scores(gram_matrix(updates), 1).round(2).tolist()
    [0.01, 0.01, 0.01, 34.81]

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer. Machine learning with adversaries: Byzantine tolerant
    gradient descent. NeurIPS 2017.
    """

    faulty: float = Field(default=0.25, ge=0, lt=0.5, description="share that may be faulty")
    single: bool = Field(default=False, description="keep the one of least score (Krum)")

    name = "multi_krum"
    paper = "Blanchard et al. 2017 (Multi-Krum)"
    conflicts = {
        "signed_weights": "'multi_krum' hands the weight of those it leaves out to the others, and "
        "weights of '{other}' may be negative: use {other}(v_min=0)"
    }

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"cleans_weights"})

    @property
    def ignores_weights(self) -> bool:
        return self.single

    def neutral(self) -> Part:
        return MultiKrum(faulty=0.0)

    def clean(
        self, deltas: Tensor, w: Tensor, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensors]:
        m = len(deltas)
        f = math.floor(self.faulty * m + 1e-9)
        keep = 1 if self.single else m - f
        if keep == m:
            return deltas, w, s
        gram = gram_matrix(deltas.numpy())
        score, to_all = (scores(gram, count) for count in (max(1, m - f - 2), m - 1))
        best = np.lexsort((to_all, score))
        kept = torch.zeros_like(w)
        kept[torch.from_numpy(best[:keep])] = 1.0
        share = w * kept if bool((w * kept).any()) else kept
        return deltas, share * (w.sum() / share.sum()), s


def scores(gram: Numbers, neighbours: int) -> Numbers:
    """Return each row's sum of its smallest squared distances to others, from their products."""
    squares = gram.diagonal()
    apart = np.maximum(squares[:, None] + squares - 2 * gram, 0.0)
    np.fill_diagonal(apart, np.inf)
    total: Numbers = np.sort(apart, axis=1)[:, :neighbours].sum(1)
    return total
