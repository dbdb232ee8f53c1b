"""An algorithm is an ordered list of parts around one training loop; FedAvg is the empty list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count

import torch
from torch import Tensor

from fedparity.arguments import made
from fedparity.errors import FedparityError, InputError
from fedparity.method.client import SHARED
from fedparity.method.composition import check_kind, problems
from fedparity.method.context import Context
from fedparity.method.facts import AFTER, FACTS
from fedparity.method.messages import SERVER, Down, Named, Replies, Server, Tensors
from fedparity.method.part import Part, Weights
from fedparity.method.reports import Loss, LossAlong, Report
from fedparity.method.returned import Losses, Served

Ask = Callable[[Down, Tensor], Replies]
"""The only door to the clients: a message and the ids of those asked."""
PROBED = frozenset(name for name, fact in FACTS.items() if fact.probed)
"""Facts that can be read in the probe; the parts' own can as well."""


@made
class Algorithm:
    """Parts in the order they apply.

    Parameters
    ----------
    parts
        The parts; none is FedAvg.
    text
        How the user wrote it.

    Raises
    ------
    InputError
        With all problems of the composition at once.
    """

    def __init__(self, parts: Part | Sequence[Part] = (), text: str | None = None) -> None:
        if not isinstance(parts, Part | Sequence):
            given = str(parts)[:80]
            raise InputError(f"{given!r} is no algorithm: give a text, a part or a list of parts")
        self.parts = (parts,) if isinstance(parts, Part) else tuple(parts)
        for part in self.parts:
            check_kind(part)
        self.text = text if text is not None else "+".join(p.name for p in self.parts) or "fedavg"
        self._having = {
            hook: [part for part in self.parts if hook in part.hooks]
            for hook in {hook for part in self.parts for hook in part.hooks}
        }
        self._acting: dict[str, Mapping[str, list[Part]]] = {}
        if found := problems(self.parts):
            raise InputError(f"'{self.text}' does not compose: {'; '.join(found)}")

    def __repr__(self) -> str:
        return f"Algorithm({self.text!r})"

    def having(self, hook: str) -> list[Part]:
        """Return the parts that use a hook, in order."""
        return self._having.get(hook, [])

    def acting(self, track: str) -> Mapping[str, list[Part]]:
        """Return the parts whose step hooks act on a track, by hook."""
        if track == SHARED:
            return self._having
        if track not in self._acting:
            self._acting[track] = {
                hook: [p for p in parts if p.everywhere or track.startswith(f"{p.name}/")]
                for hook, parts in self._having.items()
            }
        return self._acting[track]

    @cached_property
    def probe_reads(self) -> frozenset[str]:
        """Facts of the probe exchange: what parts with ``probe`` read."""
        reads = frozenset().union(*(part.reads for part in self.having("probe")))
        return frozenset(name for name in reads if name in PROBED or name not in FACTS)

    @cached_property
    def train_reads(self) -> frozenset[str]:
        """Facts of the training exchange: what other parts read, and all that training meets."""
        before = (part.reads for part in self.parts if "probe" not in part.hooks)
        after = (part.reads & AFTER for part in self.having("probe"))
        return frozenset().union(*before, *after)

    def pointed(self, phase: str) -> list[Part]:
        """Return the parts whose points are measured in an exchange."""
        probed = phase == "probe"
        return [p for p in self.having("at") if ("probe" in p.hooks) == probed]

    @cached_property
    def own_facts(self) -> dict[str, Part]:
        """The parts' own facts, by name: whose each is."""
        return {name: part for part in self.parts for name in part.own_facts}

    @cached_property
    def group_kinds(self) -> frozenset[str]:
        """The kinds of groups that parts go by."""
        return frozenset().union(*(part.group_kinds for part in self.parts))

    @cached_property
    def declared(self) -> dict[str, Mapping[str, Report]]:
        """The kinds of what clients report, by part; the round itself asks for losses."""
        asked = {"losses": Loss(), "along": LossAlong()}
        return {SERVER: asked, **{part.name: part.reports for part in self.parts}}

    @property
    def trains(self) -> bool:
        """Whether clients run the local training loop."""
        return all(part.trains for part in self.parts)

    def takes_batches(self, phase: str) -> bool:
        """Tell whether clients read batches in an exchange."""
        if phase == "evaluate":
            return self.tuning > 0
        asked = phase == "train" or (phase == "probe" and "first_grad" in self.probe_reads)
        return asked and self.trains

    @property
    def tuning(self) -> int:
        """Local steps that clients take at an evaluation; one part at most asks for them."""
        return sum(part.tuning for part in self.parts)

    @property
    def personalises(self) -> bool:
        """Whether clients are evaluated with models of their own."""
        return any(part.personalises for part in self.parts)

    @property
    def local_buffers(self) -> bool:
        """Whether a part keeps the buffers on the clients."""
        return any(part.buffers == "local" for part in self.parts)

    @property
    def alone(self) -> bool:
        """Whether each client trains alone."""
        return any(part.alone for part in self.parts)

    @property
    def own_weights(self) -> Weights | None:
        """What clients are weighed by whatever the experiment says; None where it decides."""
        return next((part.own_weights for part in self.parts if part.own_weights), None)

    @property
    def softens(self) -> str:
        """What to change where a run levels down; empty if no part knows."""
        return " or ".join(part.softens for part in self.parts if part.softens)

    def judge(
        self,
        losses: Tensor,
        output: Tensor,
        target: Tensor,
        view: Callable[[Tensor], Tensor],
        progress: float,
    ) -> Tensor:
        """Return the losses a client reports, example by example."""
        for part in self.having("judge"):
            losses = part.judge(losses, output, target, view, progress)
        return losses

    def init(self, x: Tensor, buffers: Tensor, ctx: Context) -> Server:
        """Return the server's state before the first round."""
        made = {part.name: dict(part.init_server(x, ctx)) for part in self.parts}
        return Server(x, buffers, {name: state for name, state in made.items() if state})

    def round(
        self, server: Server, cohort: Tensor, ask: Ask, ctx: Context, server_lr: float = 1.0
    ) -> tuple[Server, Replies | None]:
        """Run one round and return the new state and the training replies.

        With no reply at all the state is returned unchanged, but for what parts that tell a
        guarantee have counted: answers may have left clients and come to nothing.

        Parameters
        ----------
        server
            State at the start of the round.
        cohort
            Ids of the clients asked.
        ask
            The door to the clients.
        ctx
            The round's view, of which ``clients``, ``prior`` and ``steps`` are filled in here.
        server_lr
            Factor on the final direction.
        """
        state = dict(server.parts)
        down = Down("probe", ctx.round, ctx.lr, server.x, server.buffers)
        down = replace(down, each=self._contact(cohort, ctx))
        probe: Named = {}
        ctx = replace(ctx, asked=cohort)
        if any(part.asks(state.get(part.name, {})) for part in self.having("probe")):
            seen = ask(down, cohort)
            if not len(seen.clients):
                return self.in_vain(server, ctx_for(ctx, cohort)), None
            cohort, probe = seen.clients, seen.reports
        ctx = ctx_for(ctx, cohort)
        question, cohort = self._training(down, probe, state, ctx)
        replies = ask(question, cohort)
        if not len(replies.clients):
            return self.in_vain(server, ctx), None
        if not torch.equal(replies.clients, ctx.clients):
            ctx = ctx_for(ctx, replies.clients)
        ctx = replace(ctx, steps=replies.steps, server_lr=server_lr)

        weights = self._weights(replies, state, ctx)
        deltas, weights = self._cleaned(replies.deltas, weights, state, ctx)
        direction = self._direction(deltas, weights, replies, state, ctx)
        direction = direction.to(server.x.dtype)
        if server_lr != 1:
            direction = server_lr * direction
        direction = self._moved(direction, down, ask, state, ctx)
        x = server.x + direction
        buffers = self._buffers(server, replies, weights, ctx)
        if not any(part.ignores_weights for part in self.having("combine")):
            replies = replies._replace(weights=weights)
        return Server(x, buffers, {name: kept for name, kept in state.items() if kept}), replies

    def in_vain(self, server: Server, ctx: Context) -> Server:
        """Return the state after a round without enough answers from those who were asked.

        Answers may have left clients, late or too few: what counts privacy counts them.
        """
        counted = {
            part.name: dict(plan.state)
            for part in self.having("guarantee")
            if (plan := part.plan(server.parts.get(part.name, {}), {}, ctx)).state is not None
        }
        return server._replace(parts={**server.parts, **counted}) if counted else server

    def _training(
        self, down: Down, probe: Named, state: Named, ctx: Context
    ) -> tuple[Down, Tensor]:
        """Return the training exchange's question and whom to ask; plans may change the state."""
        trains = torch.ones_like(ctx.clients, dtype=torch.bool)
        shared: dict[str, Tensors] = {}
        each: dict[str, Tensors] = dict(self._contact(ctx.clients, ctx))
        for part in self.having("plan"):
            plan = part.plan(state.get(part.name, {}), probe.get(part.name, {}), ctx)
            shared[part.name], each[part.name] = plan.shared, plan.each
            if plan.state is not None:
                state[part.name] = dict(plan.state)
            if plan.trains is not None:
                trains = trains & plan.trains
        if not trains.all():
            each = {
                name: {key: value[trains] for key, value in sent.items()}
                for name, sent in each.items()
            }
        return replace(down, phase="train", shared=shared, each=each), ctx.clients[trains]

    def _contact(self, clients: Tensor, ctx: Context) -> Mapping[str, Tensors]:
        """Return what each client is told of itself, where a part reads it."""
        if not any("first_contact" in part.reads for part in self.parts):
            return {}
        answered = ctx.answered if len(ctx.answered) else torch.zeros_like(ctx.sizes)
        return {SERVER: {"first_contact": (answered[clients] == 0).to(ctx.x.dtype)}}

    def _weights(self, replies: Replies, state: Named, ctx: Context) -> Tensor:
        """Return the aggregation weights, ``[m]``."""
        weights = ctx.prior
        for part in self.having("weigh"):
            up = replies.reports.get(part.name, {})
            weights, kept = part.weigh(weights, up, state.get(part.name, {}), ctx)
            state[part.name] = dict(kept)
        return weights

    def _cleaned(
        self, deltas: Tensor, weights: Tensor, state: Named, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        """Return updates and weights as they are combined."""
        for part in self.having("clean"):
            deltas, weights, kept = part.clean(deltas, weights, state.get(part.name, {}), ctx)
            state[part.name] = dict(kept)
        return deltas, weights

    def _direction(
        self, deltas: Tensor, weights: Tensor, replies: Replies, state: Named, ctx: Context
    ) -> Tensor:
        """Return the direction ``[d]``: updates combined by the one rule, then step by step."""
        direction = None if self.having("combine") else weights @ deltas
        for part in self.having("combine"):
            up, s = replies.reports.get(part.name, {}), state.get(part.name, {})
            direction, kept = part.combine(deltas, weights, up, s, ctx)
            state[part.name] = dict(kept)
        assert direction is not None
        for part in self.having("step"):
            up, s = replies.reports.get(part.name, {}), state.get(part.name, {})
            direction, kept = part.step(direction, up, s, ctx)
            state[part.name] = dict(kept)
        return direction

    def _moved(self, direction: Tensor, down: Down, ask: Ask, state: Named, ctx: Context) -> Tensor:
        """Return how far the server goes; parts that decide it may ask the clients once more."""
        searches = count(1)
        for part in self.having("move"):

            def losses_at(factors: Sequence[float], direction: Tensor = direction) -> Losses:
                question = replace(down, search=next(searches))
                return ask_losses(question, ctx.clients, ask, factors, direction)

            direction, kept = part.move(direction, losses_at, state.get(part.name, {}), ctx)
            state[part.name] = dict(kept)
        return direction

    def _buffers(self, server: Server, replies: Replies, weights: Tensor, ctx: Context) -> Tensor:
        """Return the server's buffers after the round."""
        if any(part.ignores_weights for part in self.having("combine")):
            weights = ctx.uniform
        found = average_buffers(replies.buffers, weights, ctx)
        return server.buffers if found is None else found

    def served(self, server: Server) -> tuple[Tensor, dict[str, Tensors]]:
        """Return what is evaluated and kept, and what ``personal`` is sent with it, by part."""
        x, shared = server.x, dict[str, Tensors]()
        for part in self.having("serve"):
            found: Served = part.serve(x, server.parts.get(part.name, {}))
            x = found.x
            if found.shared:
                shared[part.name] = found.shared
        return x, shared


def ask_losses(
    down: Down,
    clients: Tensor,
    ask: Ask,
    factors: Sequence[float] = (0.0,),
    direction: Tensor | None = None,
) -> Losses:
    """Ask clients for their training losses at ``x + factor * direction``, an exchange."""
    told: dict[str, Tensor] = {}
    if direction is not None:
        told = {"direction": direction, "factors": direction.new_tensor(list(factors))}
    elif any(factors):
        raise FedparityError("losses at other points than x need a direction")
    found = ask(replace(down, phase="losses", shared={SERVER: told}, each={}), clients)
    values = found.reports.get(SERVER, {}).get("along" if told else "losses")
    return Losses(found.clients, down.x.new_zeros(0, len(factors)) if values is None else values)


def ctx_for(ctx: Context, clients: Tensor) -> Context:
    """Return the context restricted to those who answer, with their prior weights."""
    n, kind = ctx.sizes[clients], ctx.x.dtype
    base = n.to(kind) if ctx.by_size else torch.ones(len(n), dtype=kind)
    if len(ctx.times):
        base = base * ctx.times[clients]
    trains = all(part.trains for part in ctx.parts)
    steps = torch.from_numpy(ctx.solver.lengths(n.numpy())) if trains else torch.ones_like(n)
    return replace(ctx, clients=clients, prior=base / base.sum(), steps=steps)


def average_buffers(buffers: Tensor, weights: Tensor, ctx: Context) -> Tensor | None:
    """Average float buffers by the weights, if these are a probability vector, else by size.

    Integer counters take the maximum. Returns None where the model has no buffers or they stay on
    the clients (no rows arrive).
    """
    if not buffers.numel():
        return None
    probability = bool((weights >= 0).all()) and bool((weights.sum() - 1).abs() < 1e-6)
    by_size = ctx.n.to(buffers.dtype) / ctx.n.sum()
    mean = (weights.to(buffers.dtype) if probability else by_size) @ buffers
    return torch.where(ctx.layout.counters(), buffers.amax(0), mean)
