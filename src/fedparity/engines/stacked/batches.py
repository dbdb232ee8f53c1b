"""What the steps of a lane of several clients read: rows, targets and shares, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedparity.data import Split
from fedparity.engines.engine import Ids
from fedparity.engines.stacked.padding import even_weights, taken, weights_of
from fedparity.learning.solver import BatchPlan


class Group(NamedTuple):
    """Neighbouring clients of a plan, with the steps and the batch width of theirs."""

    who: slice
    steps: int
    width: int


class Batches(NamedTuple):
    """The batches of a group of clients, as rows of the split that holds them all."""

    data: Split
    rows: tuple[Tensor, ...]
    """Of every step, the rows ``[m * B]``."""
    targets: tuple[Tensor, ...] | None
    """Of every step, the targets ``[m, B]``; None where they are larger than the plan itself."""
    mask: Tensor | None
    """``[m, steps, B]``; False where a row is padding, None if none is."""
    even: Tensor
    """Each example's share ``[m, B]`` in its client's mean, where nothing is padding."""
    expected: int | None = None
    """What sums over a batch are divided by; None: the examples it has."""

    @staticmethod
    def by_group(
        data: Split,
        clients: Ids,
        plan: BatchPlan,
        groups: Sequence[Group],
        expected: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Iterator[Batches]:
        """Yield the planned batches of each group of these clients, with shares of a ``dtype``.

        ``expected`` is what sums over a batch are divided by; None: the examples it has.
        """
        places = (plan.index + data.offsets[clients][:, None, None]).swapaxes(0, 1)
        rows = torch.from_numpy(places.copy())
        targets = taken(data.y, rows.flatten(), rows.shape) if data.y.dim() == 1 else None
        full = bool(plan.mask.all())
        for who, steps, width in groups:
            if expected is not None:  # a lot is rarely as large as it may be
                width = max(1, int(plan.mask[who, :steps].sum(-1).max()))
            here = slice(steps), who, slice(width)
            mine, mask = rows[here], plan.mask[who, :steps, :width]
            yield Batches(
                data,
                mine.reshape(steps, -1).unbind(),
                None if targets is None else targets[here].unbind(),
                None if full or mask.all() else torch.from_numpy(mask.copy()),
                even_weights(mine.shape[1], width, dtype),
                expected,
            )

    @property
    def partial(self) -> bool:
        """Whether some batch is padded; one of a client that has done its steps is empty."""
        if self.mask is None:
            return False
        return bool((self.mask.any(-1) & ~self.mask.all(-1)).any())

    def room(self) -> Tensor:
        """Return room for the inputs of a step."""
        return self.data.x.new_empty(len(self.rows[0]), *self.data.x.shape[1:])

    def at(self, step: int, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, written to ``room``, targets ``[m, B, ...]`` and shares of a step."""
        rows, lead, share = self.rows[step], self.even.shape, self.even
        inputs = taken(self.data.x, rows, lead, room)
        target = taken(self.data.y, rows, lead) if self.targets is None else self.targets[step]
        if self.expected is not None:
            whole = torch.ones(lead) if self.mask is None else self.mask[:, step]
            share = whole.to(share.dtype) / self.expected
        elif self.mask is not None:
            share = weights_of(lead, self.mask[:, step], share.dtype)
        return inputs, target, share
