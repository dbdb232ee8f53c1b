"""What FedMinMax and FedFB have in common: an example counts by the group it is of."""

from __future__ import annotations

import torch
from torch import Tensor

from fedparity.method import Context


def of_clients(w: Tensor, sizes: Tensor, means: Tensor, ctx: Context) -> Tensor:
    """Return the weights of clients by the sum of their examples' weights, or ``w`` if all are 0.

    ``means`` are the mean weights of their examples.
    """
    each = sizes.double() * means.double() * ctx.drawn
    total = each.sum()
    return (each / total).to(w.dtype) if total > 0 else w


def over_mean(weights: Tensor, mean: Tensor) -> Tensor:
    """Return examples' weights over their mean in the client; as they are where that is 0.

    >>> over_mean(torch.tensor([1.0, 3.0]), torch.tensor(2.0))
    tensor([0.5000, 1.5000])
    """
    some = mean > 0
    return torch.where(some, weights / torch.where(some, mean, 1), weights)
