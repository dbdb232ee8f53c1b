"""A client as one part sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from fedparity.errors import FedparityError
from fedparity.learning import seeds
from fedparity.learning.layout import Layout
from fedparity.method.messages import Tensors
from fedparity.method.reports import Report

SHARED = "shared"
"""The track whose update is sent: from where ``start`` puts it."""


class Client:
    """What a part sees on one client. All attributes are tensors of that client alone.

    Attributes
    ----------
    x
        The received parameters ``x_t``.
    anchor
        Where local training starts: ``x_t``, unless a part's ``start`` puts a client's own there.
    down, state
        What the part's plan (at an evaluation, its ``serve``) sent, and what it keeps here.
    lr, round, step
        Numbers: the learning rate, the round, the local step (in step hooks).
    track
        In step hooks: ``shared``, or the name that the part's own ``tracks`` gave; of another
        part's track ``part/name``.
    progress
        The share of the run's rounds that is done with this one: 1 in the last. Where a run is
        resumed with more rounds it is a share of the new number from then on.
    n, steps
        Scalar tensors: training examples, local steps of this round.
    points
        What was measured at the points of the part's ``at``: ``c.points[name][fact]``.
    end, ends
        After training: the parameters of the shared track, and those of the part's own tracks by
        name.
    carried
        In step hooks and after training: what the part's ``carry`` last returned, by name; empty
        before.
    inputs, share, predict, augment
        In ``loss``: the batch, each example's share in the batch's mean (0 where a stack is
        padded), the model's output at the current parameters on other inputs, and the task's
        augmentation. :meth:`mean` takes the mean.
    groups
        In ``loss``: the group of each example of the batch, ``c.groups[kind]``, of the part's
        ``group_kinds``.
    second
        In ``grad``: the gradient asked for by the ``second`` hook, over the whole vector.
    kinds
        In ``seal``: the kinds that parts declare of their reports, ``c.kinds[part][name]``.

    Every fact that the part lists in ``reads`` is an attribute of its name, where it is known:
    ``c.loss``, ``c.grad``, ``c.lstar`` (see :data:`fedparity.method.facts.FACTS`).
    """

    x: Tensor
    anchor: Tensor
    progress: float
    track: str
    n: Tensor
    steps: Tensor
    down: Tensors
    state: Tensors
    points: Mapping[str, Tensors]
    ends: Tensors
    carried: Tensors
    inputs: Tensor
    share: Tensor
    predict: Callable[[Tensor], Tensor]
    augment: Callable[[Tensor, Tensor], Tensor]
    groups: Mapping[str, Tensor]
    second: Tensor
    kinds: Mapping[str, Mapping[str, Report]]

    def __init__(self, lr: float, round: int, layout: Layout, **known: object) -> None:
        self.lr, self.round, self.layout = lr, round, layout
        self.step, self.track = -1, SHARED
        self.__dict__.update(known)

    @cached_property
    def end(self) -> Tensor:
        """Made when a part asks: most do not, and it is as large as the update."""
        if "after" not in self.__dict__:
            raise self._unknown("end")
        after: Callable[[], Tensor] = self.__dict__["after"]
        return after()

    def __getattr__(self, name: str) -> Tensor:
        """Return a fact that was measured."""
        known: Tensors = self.__dict__.get("_facts", {})
        if name not in known:
            raise self._unknown(name)
        return known[name]

    def mean(self, values: Tensor) -> Tensor:
        """Return the batch's mean of numbers an example, ``[B, ...]``; padding has no share."""
        share = self.share.reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(share > 0, values * share, 0).sum(0)

    @staticmethod
    def _unknown(name: str) -> FedparityError:
        return FedparityError(
            f"c.{name} is not known here: list it in `reads`, or use it in its hook"
        )

    def uniform(self, size: int, draw: int = 0) -> Tensor:
        """Return numbers in [0, 1) that depend on run, round, client, part, hook, step and draw."""
        return seeds.uniform(self._own_seed(), self._draw(draw), size, self.anchor.dtype)

    def noise(self, size: int, draw: int = 0, secret: bool = False) -> Tensor:
        """Return standard normal numbers at the same address as :meth:`uniform`.

        In ``seal`` they are others in every exchange of a round. ``secret`` takes them from the
        operating system's chance instead, for a part that guarantees privacy (it has the hook
        ``guarantee``): whoever knows the run's seed could subtract the others.
        """
        seed = self._own_seed()
        if secret:
            if self.__dict__.get("secret") is None:
                raise self._unknown("secret")
            seed = seed ^ self.__dict__["secret"].to(seed.device)
        return seeds.normal(seed, self._draw(draw), size, self.anchor.dtype)

    def _own_seed(self) -> Tensor:
        """Return the seed of this part and hook; made when a part draws, for most do not."""
        if "purpose" not in self.__dict__:
            raise self._unknown("seed")
        return seeds.salted(self.__dict__["seed"], self.__dict__["purpose"])

    def _draw(self, draw: int) -> int:
        return 1024 * (self.step + 1) + draw
