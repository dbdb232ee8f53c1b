"""The unit of the library: a Part, one idea with its client half and its server half.

The order in which a round calls the hooks is written once, in :mod:`fedparity.method.algorithm`
(server) and :mod:`fedparity.method.answer` (client).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import torch
from pydantic import ConfigDict
from torch import Tensor

from fedparity.errors import FedparityError
from fedparity.learning import seeds
from fedparity.learning.layout import Layout
from fedparity.learning.solver import Solver

Tensors = Mapping[str, Tensor]
Fact = Literal[
    "loss",
    "grad",
    "validation_loss",
    "lstar",
    "first",
    "first_grad",
    "last_second",
    "end_loss",
]
Weights = Literal["size", "uniform"]
"""Weights of clients before losses or gaps speak: by their examples, or all alike."""
AFTER: frozenset[Fact] = frozenset({"first", "first_grad", "last_second", "end_loss"})
"""Facts of local training, known at its end."""
PROBED: frozenset[Fact] = frozenset({"first_grad"})
"""Facts of local training that a probe can measure as well."""

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
"""Configuration of every part's dataclass: unknown settings and infinite values are errors.

A setting that may be infinite says so itself: ``Field(allow_inf_nan=True)``.
"""

HOOKS = (
    "init_server",
    "init_client",
    "measure",
    "plan",
    "start",
    "loss",
    "second",
    "grad",
    "finish",
    "weigh",
    "combine",
    "step",
    "judge",
    "tell",
    "serve",
    "personal",
)


Hook = TypeVar("Hook", bound=Callable[..., object])


def stacked(hook: Hook) -> Hook:
    """Mark a ``factor`` or ``finish`` whose lines hold for a whole stack of clients as they stand.

    They are written for the tensors of one client and are as true where each has one more
    dimension in front: differences, products, sums over the last dimension. ``c.anchor`` and what
    a plan sends to all have no such dimension; what is reported must have it; nothing may be drawn
    at random. Any other hook is lifted by vmap, which takes longer than a few numbers take to
    compute.
    """
    if hook.__name__ not in ("factor", "finish"):
        raise TypeError(f"only 'factor' and 'finish' can be stacked, not '{hook.__name__}'")
    hook.stacked = True  # type: ignore[attr-defined]
    return hook


def is_stacked(hook: Callable[..., object]) -> bool:
    """Tell whether a hook is marked as true of a stack."""
    return hasattr(hook, "stacked")


@dataclass(frozen=True)
class Plan:
    """What the server sends for a part: the same to all, and one row for each client."""

    shared: Tensors = field(default_factory=dict)
    each: Tensors = field(default_factory=dict)
    """Tensors whose first dimension is the cohort, in the order of ``ctx.clients``."""
    state: Tensors | None = None
    """The part's new server state, if it changed."""


@dataclass(frozen=True)
class Finish:
    """What a part returns when a client's local training ends."""

    delta: Tensor
    report: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The server's view of a round.

    ``clients`` are the ids of those who answer, ascending; every other tensor has their order.
    """

    round: int
    """Counts from 1."""
    population: int
    sizes: Tensor
    """Training examples of the whole population, ``[K]``."""
    clients: Tensor
    prior: Tensor
    """Aggregation weights before any part speaks: by size or uniform, summing to 1."""
    steps: Tensor
    """Local steps of each client."""
    lr: float
    x: Tensor
    layout: Layout
    by_size: bool = True
    """Whether the experiment weighs clients by their examples, or all alike."""
    cohort: int = 0
    """Clients asked a round."""
    solver: Solver = field(default_factory=Solver)
    parts: tuple[Part, ...] = ()
    """All parts of the algorithm."""
    seed: int = 0
    validation: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Validation examples of the whole population, ``[K]``; empty where they are not known."""

    @property
    def n(self) -> Tensor:
        """Training examples of those who answer."""
        return self.sizes[self.clients]

    @property
    def shares(self) -> Tensor:
        """The prior weights of the whole population, ``[K]``, summing to 1."""
        each = (
            self.sizes.to(self.x.dtype) if self.by_size else torch.ones_like(self.sizes).to(self.x)
        )
        return each / each.sum()

    @property
    def uniform(self) -> Tensor:
        """The uniform weights over those who answer."""
        return torch.full_like(self.prior, 1 / len(self.prior))


class Client:
    """What a part sees on one client. All attributes are tensors of that client alone.

    Attributes
    ----------
    anchor
        Where local training starts: the received parameters ``x_t``, unless a part's ``start``
        puts a client's own in their place.
    down, state
        What the part's plan sent, and what it keeps here between rounds.
    lr, round, step
        Numbers: the learning rate, the round, the local step (in step hooks).
    progress
        The share of the run's rounds that is done with this one: 1 in the last. Where a run is
        resumed with more rounds it is a share of the new number from then on.
    n, steps
        Scalar tensors: training examples, local steps of this round.
    loss, grad
        Mean loss over the training split at the anchor, and its gradient; of the loss that a
        part's ``judge`` makes of it, if there is one.
    validation_loss, lstar
        Loss at the anchor on the validation split and the best one reached alone, ``L*`` (both on
        the training split where a client has no validation example).
    end, end_loss
        Parameters after local training and their mean loss over the training split.
    first
        Parameters after the first local step.
    first_grad
        Gradient of the first batch at the anchor, before any part changes it. In a probe it is
        measured without taking the step: the batch is the one that training will begin with.
    last_second
        The gradient of the ``second`` hook at the last local step.
    inputs, predict, augment
        In ``loss``: the batch, the model's output at the current parameters on other inputs, and
        the task's augmentation.

    A part lists in :attr:`Part.reads` which of the measured ones it uses.
    """

    anchor: Tensor
    progress: float
    n: Tensor
    steps: Tensor
    down: Tensors
    state: Tensors
    inputs: Tensor
    predict: Callable[[Tensor], Tensor]
    augment: Callable[[Tensor, Tensor], Tensor]
    second: Tensor
    """In ``grad``: the gradient asked for by the ``second`` hook, over the whole vector."""

    loss: Tensor
    grad: Tensor
    validation_loss: Tensor
    lstar: Tensor
    first: Tensor
    first_grad: Tensor
    last_second: Tensor
    end_loss: Tensor

    def __init__(self, lr: float, round: int, layout: Layout, **known: object) -> None:
        self.lr, self.round, self.layout = lr, round, layout
        self.step = -1
        self.__dict__.update(known)

    @cached_property
    def end(self) -> Tensor:
        """Made when a part asks: most do not, and it is as large as the update."""
        if "after" not in self.__dict__:
            raise self._unknown("end")
        after: Callable[[], Tensor] = self.__dict__["after"]
        return after()

    def __getattr__(self, name: str) -> Tensor:
        """Return what was measured: asked for when a part looks, for it may be under way."""
        known: Tensors = self.__dict__.get("_facts", dict)()
        if name not in known:
            raise self._unknown(name)
        return known[name]

    @staticmethod
    def _unknown(name: str) -> FedparityError:
        return FedparityError(
            f"c.{name} is not known here: list it in `reads`, or use it in its hook"
        )

    def uniform(self, size: int, draw: int = 0) -> Tensor:
        """Return numbers in [0, 1) that depend on run, round, client, part, hook, step and draw."""
        return seeds.uniform(self._own_seed(), self._draw(draw), size, self.anchor.dtype)

    def noise(self, size: int, draw: int = 0) -> Tensor:
        """Return standard normal numbers at the same address as :meth:`uniform`."""
        return seeds.normal(self._own_seed(), self._draw(draw), size, self.anchor.dtype)

    def _own_seed(self) -> Tensor:
        """Return the seed of this part and hook; made when a part draws, for most do not."""
        if "purpose" not in self.__dict__:
            raise self._unknown("seed")
        return seeds.salted(self.__dict__["seed"], self.__dict__["purpose"])

    def _draw(self, draw: int) -> int:
        return 1024 * (self.step + 1) + draw


class Part:
    """One idea of federated learning, as a frozen dataclass of its settings.

    Every hook is optional; the default is the identity. A part sees only its own namespace of
    state and messages.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    equalises: ClassVar[str] = "nothing"
    """What the method makes more equal among clients, in the words of the glossary."""
    learns: ClassVar[str] = "its update"
    """What the server learns of one client."""

    replaces: ClassVar[frozenset[str]] = frozenset()
    """``weigh`` if this part discards the weights it is given."""
    trains: ClassVar[bool] = True
    """Whether clients run the local training loop; False where ``finish`` makes the update."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Conditions of the experiment: ``full_participation``, ``plain_sgd``."""
    alone: ClassVar[bool] = False
    """Whether each client trains alone: nothing is averaged, so nobody gains or pays by joining."""
    buffers: ClassVar[Literal["local", None]] = None
    """``local``: this part keeps buffers on the client whatever the experiment says."""
    overwrites: ClassVar[frozenset[str]] = frozenset()
    """Server state that hooks may write to and hand on, too large to copy every round.

    Nobody else holds it: a round that has begun takes it along. All else that a hook is given stays
    as it is.
    """

    @property
    def reads(self) -> frozenset[Fact]:
        """What the part asks clients to measure at ``x_t``: before training, or in the probe."""
        return frozenset()

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks this part really uses, given its settings."""
        return frozenset(h for h in HOOKS if getattr(type(self), h) is not getattr(Part, h))

    @property
    def ignores_weights(self) -> bool:
        """Whether ``combine`` discards the aggregation weights."""
        return False

    @property
    def own_weights(self) -> Weights | None:
        """What the part weighs clients by that discards the weights it is given, else None."""
        discards = "weigh" in self.replaces or self.ignores_weights
        return "uniform" if discards else None

    @property
    def softens(self) -> str:
        """What to change where a run levels down, such as ``lower lam``; empty if nothing does."""
        return ""

    def neutral(self) -> Part | None:
        """Return the setting in which this part is uniform FedAvg, or None if there is none."""
        return None

    def validate(self, ctx: Context) -> None:
        """Raise InputError if the part cannot work in this experiment."""

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        """Return what the server keeps between rounds."""
        return {}

    def init_client(self, x: Tensor, layout: Layout) -> Tensors:
        """Return what each client keeps between rounds; ``x`` are the initial parameters."""
        return {}

    def measure(self, c: Client) -> Tensors:
        """Client, at ``x_t``, before planning: numbers for the server (costs an exchange)."""
        return {}

    def asks(self, s: Tensors) -> bool:
        """Server, before a round: whether a part with ``measure`` needs that exchange now.

        Where no part asks there is no exchange, and ``plan`` is given no probe.
        """
        return True

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        """Server, before training: what to send."""
        return Plan()

    def start(self, x: Tensor, c: Client) -> Tensor:
        """Client: where local training starts."""
        return x

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        """Client, every step: losses an example -> losses an example; their mean is descended."""
        return losses

    def second(self, losses: Tensor, c: Client) -> Tensor:
        """Client, every step: losses whose gradient over the last layers ``grad`` also needs."""
        return losses

    def second_from(self, layout: Layout) -> int:
        """Return the index in ``x`` from which the gradient of ``second`` is taken."""
        return 0

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        """Client, every step: gradient -> gradient."""
        return g

    def factor(self, c: Client) -> Tensor:
        """Client: the number of this round, if all that ``grad`` does is to multiply by it.

        A part that tells it spares the engines a vector: they scale the losses instead.
        """
        raise NotImplementedError

    @property
    def scales(self) -> bool:
        """Whether ``grad`` multiplies by ``factor`` and does nothing else."""
        return type(self).factor is not Part.factor

    def finish(self, delta: Tensor, c: Client) -> Finish:
        """Client, after training: the update, what is reported and what is kept."""
        return Finish(delta)

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        """Server: aggregation weights and new state."""
        return w, s

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        """Server: updates ``[m, d]`` and weights ``[m]`` to a direction ``[d]``, and new state."""
        return w @ deltas, s

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        """Server: direction -> direction, and new state."""
        return direction, s

    def judge(
        self,
        losses: Tensor,
        output: Tensor,
        target: Tensor,
        view: Callable[[Tensor], Tensor],
        progress: float,
    ) -> Tensor:
        """Client, when a loss is reported: losses an example -> losses an example.

        ``view(u)`` is the model's output on the inputs augmented with the numbers ``u``, and
        ``progress`` is ``c.progress``. Whatever is random in training is fixed here, so that a
        report is deterministic.
        """
        return losses

    def tell(self, s: Tensors) -> dict[str, float]:
        """Server, after the round: numbers for the log."""
        return {}

    def serve(self, x: Tensor, s: Tensors) -> Tensor:
        """Server, at evaluation: the parameters to evaluate and keep; rounds go on from ``x``."""
        return x

    def personal(self, x: Tensor, c: Client) -> Tensor:
        """Client, at evaluation: the parameters it would really use."""
        return x
