"""An algorithm is an ordered list of parts around one training loop; FedAvg is the empty list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method.part import AFTER, PROBED, Context, Fact, Part, Tensors, Weights

if TYPE_CHECKING:
    from fedparity.method.answer import Down, Named


class Replies(NamedTuple):
    """What came back from an exchange, stacked in ascending order of client id."""

    clients: Tensor
    steps: Tensor
    reports: Named
    deltas: Tensor
    buffers: Tensor


class Server(NamedTuple):
    """What the server keeps: parameters, buffers, and each part's state."""

    x: Tensor
    buffers: Tensor
    parts: dict[str, dict[str, Tensor]]


Ask = Callable[["Down", Tensor], Replies]
"""The only door to the clients: a message and the ids of those asked."""


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

    def __init__(self, parts: Sequence[Part] = (), text: str | None = None) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            _check_kind(part)
        self.text = text if text is not None else "+".join(p.name for p in parts) or "fedavg"
        self._having = {
            hook: [part for part in self.parts if hook in part.hooks]
            for hook in {hook for part in self.parts for hook in part.hooks}
        }
        problems = self._problems()
        if problems:
            raise InputError(f"'{self.text}' does not compose: {'; '.join(problems)}")

    def __repr__(self) -> str:
        return f"Algorithm({self.text!r})"

    def having(self, hook: str) -> list[Part]:
        """Return the parts that use a hook, in order."""
        return self._having.get(hook, [])

    @cached_property
    def probe_reads(self) -> frozenset[Fact]:
        """What is measured in the probe exchange: what parts with ``measure`` read."""
        measuring = self.having("measure")
        return frozenset().union(*(p.reads - (AFTER - PROBED) for p in measuring))

    @cached_property
    def train_reads(self) -> frozenset[Fact]:
        """What is measured in the training exchange."""
        measuring = self.having("measure")
        before = (p.reads for p in self.parts if p not in measuring)
        after = (p.reads & AFTER for p in measuring)
        return frozenset().union(*before, *after)

    @property
    def trains(self) -> bool:
        """Whether clients run the local training loop."""
        return all(part.trains for part in self.parts)

    def takes_batches(self, phase: str) -> bool:
        """Tell whether clients read batches in an exchange."""
        return phase == "train" or (phase == "probe" and "first_grad" in self.probe_reads)

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

        The order of a round: probe (if a part asks for it), plan, train, weigh, combine, step. With
        no reply at all the state is returned unchanged.

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
        from fedparity.method.answer import Down

        parts = dict(server.parts)
        down = Down("probe", ctx.round, ctx.lr, server.x, server.buffers)
        probe: Named = {}
        if any(part.asks(parts.get(part.name, {})) for part in self.having("measure")):
            answers = ask(down, cohort)
            if not len(answers.clients):
                return server, None
            cohort, probe = answers.clients, answers.reports

        ctx = ctx_for(ctx, cohort)
        shared: dict[str, Tensors] = {}
        each: dict[str, Tensors] = {}
        for part in self.having("plan"):
            plan = part.plan(parts.get(part.name, {}), probe.get(part.name, {}), ctx)
            shared[part.name], each[part.name] = plan.shared, plan.each
            if plan.state is not None:
                parts[part.name] = dict(plan.state)

        replies = ask(replace(down, phase="train", shared=shared, each=each), cohort)
        if not len(replies.clients):
            return server, None
        if not torch.equal(replies.clients, cohort):
            ctx = ctx_for(ctx, replies.clients)
        ctx = replace(ctx, steps=replies.steps)

        weights = ctx.prior
        for part in self.having("weigh"):
            weights, parts[part.name] = _stateful(
                part.weigh(
                    weights, replies.reports.get(part.name, {}), parts.get(part.name, {}), ctx
                )
            )
        if combining := self.having("combine"):
            part = combining[0]
            direction, parts[part.name] = _stateful(
                part.combine(
                    replies.deltas,
                    weights,
                    replies.reports.get(part.name, {}),
                    parts.get(part.name, {}),
                    ctx,
                )
            )
        else:
            direction = weights @ replies.deltas
        for part in self.having("step"):
            direction, parts[part.name] = _stateful(
                part.step(
                    direction, replies.reports.get(part.name, {}), parts.get(part.name, {}), ctx
                )
            )
        x = server.x + server_lr * direction.to(server.x.dtype)
        if any(part.ignores_weights for part in combining):
            weights = ctx.uniform
        buffers = average_buffers(replies.buffers, weights, ctx)
        kept = {name: state for name, state in parts.items() if state}
        return Server(x, server.buffers if buffers is None else buffers, kept), replies

    def served(self, server: Server) -> Tensor:
        """Return the parameters that are evaluated and kept, which need not be the last ones."""
        x = server.x
        for part in self.having("serve"):
            x = part.serve(x, server.parts.get(part.name, {}))
        return x

    def _problems(self) -> list[str]:
        problems = []
        names = [part.name for part in self.parts]
        problems += [
            f"'{name}' stands twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        combining = self.having("combine")
        if len(combining) > 1:
            first, second = combining[:2]
            problems.append(
                f"'{first.name}' and '{second.name}' both combine the updates: keep one"
            )
        for part in combining:
            if part.ignores_weights:
                problems += [
                    f"'{part.name}' averages in its own way, so the weights of '{other.name}' "
                    "would be ignored: keep one"
                    for other in self.having("weigh")
                ]
        weighing = self.having("weigh")
        for place, part in enumerate(weighing):
            if "weigh" in part.replaces and place:
                other = weighing[place - 1]
                remedy = "keep one" if "weigh" in other.replaces else f"write '{part.name}' first"
                problems.append(
                    f"'{part.name}' would overwrite the weights of '{other.name}': {remedy}"
                )
        if len(self.having("second")) > 1:
            problems.append("two parts ask for a second gradient: keep one")
        return problems


def _check_kind(part: object) -> None:
    """Refuse what is no part, and a part whose settings could not be written down."""
    if isinstance(part, type) and issubclass(part, Part):
        raise InputError(f"{part.__name__} is a class: write {part.__name__}(...)")
    if not isinstance(part, Part):
        raise InputError(f"{part!r} is not a part")
    if not is_dataclass(part) and type(part).__init__ is not object.__init__:
        raise InputError(f"part '{part.name}' has settings: make it a frozen dataclass of them")


def ctx_for(ctx: Context, clients: Tensor) -> Context:
    """Return the context restricted to those who answer, with their prior weights."""
    n, kind = ctx.sizes[clients], ctx.x.dtype
    base = n.to(kind) if ctx.by_size else torch.ones(len(n), dtype=kind)
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


def _stateful(result: tuple[Tensor, Tensors]) -> tuple[Tensor, dict[str, Tensor]]:
    value, state = result
    return value, dict(state)
