"""What can be measured of a client: an open table of names, and how each is come by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

PerExample = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A part's own fact: ``(losses, output, target)`` of a batch to a number an example, ``[B]``.

Or several, ``[B, ...]``. What a part reads of it is the mean over the client's training examples.
"""


@dataclass(frozen=True)
class ByGroup:
    """A part's own fact, told apart by the groups of a kind: ``[..., G]`` for G groups.

    What a part reads of it is the mean over all training examples of the client, where an example
    counts in the place of its own group and is 0 in the others: a sum over the group, divided by
    all examples. The places are those of ``ctx.groups[kind].names``.

    Parameters
    ----------
    kind
        The kind of group, such as ``sex``.
    of
        The numbers of an example.
    """

    kind: str
    of: PerExample


OwnFact = PerExample | ByGroup


@dataclass(frozen=True)
class Fact:
    """How a fact is measured.

    Parameters
    ----------
    about
        What it is, in words.
    when
        ``start``: where local training starts, before its first step; ``steps``: met on the way;
        ``end``: of the parameters after training.
    at
        Whether it can be measured at any parameters (the hook ``at``).
    probed
        Whether it can be read in the probe as well as in training.
    """

    about: str
    when: Literal["start", "steps", "end"] = "start"
    at: bool = False
    probed: bool = True


FACTS: dict[str, Fact] = {
    "loss": Fact("mean training loss, as a part's `judge` makes it", at=True),
    "grad": Fact("gradient of `loss`", at=True),
    "validation_loss": Fact("mean validation loss; training where a client has none", at=True),
    "accuracy": Fact("share of training examples that are right", at=True),
    "right": Fact("how right each training example is, 0 to 1, [longest]; 0 behind the last one"),
    "lstar": Fact("L*, the best validation loss that the client reaches alone"),
    "label_counts": Fact("training examples of each class, [classes]"),
    "first_contact": Fact("1 until the client has taken part in a round, then 0"),
    "first_grad": Fact("gradient of the first batch, before any part changes it", "steps"),
    "first": Fact("parameters after the first local step", "steps", probed=False),
    "last_second": Fact("the gradient of `second` at the last step", "steps", probed=False),
    "end_loss": Fact("mean training loss after local training", "end", probed=False),
}
"""All facts but the parts' own (:attr:`~fedparity.method.part.Part.own_facts`)."""

BEFORE = frozenset(name for name, fact in FACTS.items() if fact.when == "start")
"""Measured before the first step."""
AFTER = frozenset(FACTS) - BEFORE
"""Known at the end of local training."""
