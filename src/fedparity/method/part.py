"""The unit of the library: a Part, one idea with its client half and its server half.

The order in which a round calls the hooks is written once, in :mod:`fedparity.method.algorithm`
(server) and :mod:`fedparity.engines.answer` (client).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from pydantic import ConfigDict
from torch import Tensor

from fedparity.arguments import Settings
from fedparity.learning.layout import Layout
from fedparity.method.client import Client
from fedparity.method.context import Context
from fedparity.method.facts import OwnFact
from fedparity.method.messages import Reply, Tensors
from fedparity.method.privacy import Guarantee
from fedparity.method.reports import Report
from fedparity.method.returned import Finish, LossesAt, Mixture, Plan, Served

Weights = Literal["size", "uniform"]
"""Weights of clients before losses or gaps speak: by their examples, or all alike."""

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
"""Configuration of every part's dataclass: unknown settings and infinite values are errors.

A setting that may be infinite says so itself: ``Field(allow_inf_nan=True)``.
"""

HOOKS = (
    "init_server",
    "init_client",
    "probe",
    "plan",
    "start",
    "at",
    "tracks",
    "look",
    "carry",
    "loss",
    "second",
    "examples",
    "grad",
    "finish",
    "seal",
    "weigh",
    "clean",
    "combine",
    "step",
    "move",
    "judge",
    "tell",
    "guarantee",
    "serve",
    "personal",
    "mixture",
)
"""All hooks, in the order of a round."""


class Part(metaclass=Settings):
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
    reconstructed: ClassVar[bool] = False
    """Whether its formulas are from general knowledge, checked against neither paper nor code."""
    reports: ClassVar[Mapping[str, Report]] = {}
    """The kinds of what clients report by ``probe`` and ``finish``, by name.

    What is not listed may be any finite number.
    """

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
    by_example: ClassVar[frozenset[str]] = frozenset()
    """Of what ``init_client`` makes, the numbers that a client keeps of each training example:
    ``[longest]`` in hooks, with as many places as the client that has most."""
    everywhere: ClassVar[bool] = False
    """Whether ``loss`` and ``grad`` act on the tracks of other parts too, not on the shared one and
    the part's own alone."""
    conflicts: ClassVar[Mapping[str, str]] = {}
    """Traits of other parts that this one cannot stand with: trait -> reason and remedy, in which
    ``{other}`` is the other's name."""
    behind: ClassVar[Mapping[str, str]] = {}
    """Traits of parts that must not stand behind this one: trait -> reason and remedy."""
    ahead: ClassVar[Mapping[str, str]] = {}
    """Traits of parts that must not stand ahead of this one: trait -> reason and remedy."""

    @property
    def reads(self) -> frozenset[str]:
        """Names of the facts that the part uses: see :data:`fedparity.method.facts.FACTS`.

        A part with ``probe`` has there what is measured before the first step, and in training only
        what the steps meet; any other part has all of it in training.
        """
        return frozenset()

    @property
    def own_facts(self) -> Mapping[str, OwnFact]:
        """Facts of the part's own: name -> function of examples, of which the mean is taken."""
        return {}

    @property
    def group_kinds(self) -> frozenset[str]:
        """The kinds of groups that the part goes by; a federation without them is refused.

        ``ctx.groups`` tells the server of them, and ``loss`` sees each example's in ``c.groups``.
        """
        return frozenset()

    @property
    def points(self) -> Mapping[str, frozenset[str]]:
        """What is measured at the parameters that ``at`` gives: name -> facts."""
        return {}

    @property
    def tuning(self) -> int:
        """Local steps that a client takes at an evaluation, from the parameters that it received.

        ``personal`` is then given where they have led.
        """
        return 0

    @property
    def personalises(self) -> bool:
        """Whether clients are evaluated with models of their own."""
        return bool(self.tuning or self.hooks & {"personal", "mixture"})

    @property
    def traits(self) -> frozenset[str]:
        """What other parts may have to know, besides what its hooks and facts say already.

        See :func:`fedparity.method.composition.words`.
        """
        return frozenset()

    @property
    def fewest(self) -> int:
        """How many clients must be asked a round at least."""
        return 1

    @property
    def pull(self) -> float:
        """Strength of a pull towards the received parameters at every step; 0 if there is none."""
        return 0.0

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks this part really uses, given its settings."""
        return frozenset(h for h in HOOKS if getattr(type(self), h) is not getattr(Part, h))

    @property
    def ignores_weights(self) -> bool:
        """Whether ``combine``, or ``clean``, discards the aggregation weights."""
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

    def probe(self, c: Client) -> Tensors:
        """Client, before planning: numbers for the server (costs an exchange)."""
        return {}

    def asks(self, s: Tensors) -> bool:
        """Server, before a round: whether a part with ``probe`` needs that exchange now.

        Where no part asks there is no exchange, and ``plan`` is given no probe.
        """
        return True

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        """Server, before training: what to send."""
        return Plan()

    def start(self, x: Tensor, c: Client) -> Tensor:
        """Client: where the shared track starts."""
        return x

    def at(self, c: Client) -> Tensors:
        """Client: the parameters of :attr:`points`, at which losses or gradients are measured."""
        return {}

    def tracks(self, c: Client) -> Tensors:
        """Client: further starts for the same local training, by name.

        Each is trained as the shared one is, on the same batches. ``loss`` and ``grad`` see in
        ``c.track`` which it is, and ``finish`` sees where each ended: ``c.ends[name]``.
        """
        return {}

    def look(self, y: Tensor, shared: Tensor, c: Client) -> Tensor:
        """Client, every step of an own track: where its gradient is taken, from where it stands.

        The part's own tracks then go side by side with the shared one, step by step: ``shared`` is
        where that one stands before the same step.
        """
        return y

    def carry(self, y: Tensor, c: Client) -> Tensors:
        """Client, before every step: numbers that go along, by name, read as ``c.carried``.

        ``y`` is where the track stands; before the first step (``c.step`` is 0) nothing is carried.
        """
        return {}

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        """Client, every step: losses an example -> losses an example; their mean is descended.

        A loss of the whole batch is ``f(c.mean(losses)).expand_as(losses)``.
        """
        return losses

    def second(self, losses: Tensor, c: Client) -> Tensor:
        """Client, every step: losses whose gradient over the last layers ``grad`` also needs."""
        return losses

    def second_from(self, layout: Layout) -> int:
        """Return the index in ``x`` from which the gradient of ``second`` is taken."""
        return 0

    def examples(self, grads: Tensor, c: Client) -> Tensor:
        """Client, every step: gradients an example ``[B, d]`` -> the same, before their mean."""
        return grads

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        """Client, every step: gradient -> gradient, at the parameters ``x``."""
        return g

    def finish(self, delta: Tensor, c: Client) -> Finish:
        """Client, after training: the update, what is reported and what is kept."""
        return Finish(delta)

    def seal(self, reply: Reply, c: Client) -> Reply:
        """Client, last of all: everything that leaves it, of every part, in every exchange.

        The boundary: clipping, noise, compression. Nothing is reported around it.
        """
        return reply

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        """Server: aggregation weights and new state."""
        return w, s

    def clean(
        self, deltas: Tensor, w: Tensor, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensors]:
        """Server: updates ``[m, d]`` and weights ``[m]`` before they are combined, new state."""
        return deltas, w, s

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

    def move(
        self, direction: Tensor, losses_at: LossesAt, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        """Server, when the direction is known: how far to go; each ``losses_at`` is an exchange."""
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

    def guarantee(self, s: Tensors, ctx: Context) -> Guarantee | None:
        """Server, after the round: what can be said of the clients' privacy; None says nothing.

        ``ctx`` is the view before the first round.
        """
        return None

    def serve(self, x: Tensor, s: Tensors) -> Served:
        """Server, before an evaluation: what to evaluate and keep, and what ``personal`` needs."""
        return Served(x)

    def personal(self, x: Tensor, c: Client) -> Tensor:
        """Client, at evaluation: the parameters it would really use."""
        return x

    def mixture(self, x: Tensor, c: Client) -> Mixture:
        """Client, at evaluation: parameters whose predictions it would mix, and their shares."""
        return Mixture(x[None], x.new_ones(1))
