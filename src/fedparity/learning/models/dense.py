"""Linear layers: logistic regression, and a perceptron of any width and depth."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from fedparity.arguments import checked
from fedparity.learning.models.shapes import Shape, flat_features, sequence


@checked
def linear(
    shape: Shape, outputs: int, *, softmax: bool = False, zero_bias: bool = False
) -> nn.Module:
    """One linear layer on the flattened example, ``W x + b``: logistic or linear regression.

    ``zero_bias`` starts at ``b = 0``. ``softmax`` gives probabilities in place of logits: their
    cross-entropy takes the softmax twice, so its slope is bounded. That is how the tables of the
    FedFV paper were made; for anything else leave it out.
    """
    out = nn.Linear(flat_features("linear", shape), outputs)
    if zero_bias:
        nn.init.zeros_(out.bias)
    return sequence(flatten=nn.Flatten(), out=out, **_end(softmax))


@checked
def mlp(
    shape: Shape,
    outputs: int,
    *,
    hidden: Annotated[int, Field(ge=1)] = 200,
    layers: Annotated[int, Field(ge=1)] = 2,
    softmax: bool = False,
) -> nn.Module:
    """``layers`` hidden layers of ``hidden`` units with ReLU, two of 200 as in the papers.

    ``softmax`` as for :func:`linear`.
    """
    sizes = [flat_features("mlp", shape), *[hidden] * layers]
    modules: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number in range(1, layers + 1):
        modules[f"hidden{number}"] = nn.Linear(sizes[number - 1], sizes[number])
        modules[f"relu{number}"] = nn.ReLU()
    return sequence(**modules, out=nn.Linear(hidden, outputs), **_end(softmax))


def _end(softmax: bool) -> dict[str, nn.Module]:
    """Return what follows the last layer."""
    return {"softmax": nn.Softmax(dim=-1)} if softmax else {}
