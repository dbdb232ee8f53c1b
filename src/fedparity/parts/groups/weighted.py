"""What parts that go by groups have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import Context, Part, Weights


class OfGroups(Part):
    """A part that goes by the groups of one kind and weighs clients itself, beginning by size.

    Derive from it with a setting ``group``, the kind, and with facts of its own.
    """

    group: str
    replaces = frozenset({"weigh"})

    @property
    def group_kinds(self) -> frozenset[str]:
        return frozenset({self.group})

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.own_facts)

    @property
    def own_weights(self) -> Weights:
        return "size"


class OfAnswers(OfGroups):
    """One that goes by answers: the class ``positive`` is yes, all others are no."""

    positive: int

    def validate(self, ctx: Context) -> None:
        if not ctx.classes:
            raise InputError(
                f"'{self.name}' goes by one answer an example, yes or no, and targets are no "
                "classes: use a method that goes by losses, such as fedminmax"
            )
        if self.positive >= ctx.classes:
            raise InputError(
                f"'{self.name}' takes class {self.positive} for yes, and there are classes 0 to "
                f"{ctx.classes - 1}: name one of them (positive={ctx.classes - 1})"
            )


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
