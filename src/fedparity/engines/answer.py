"""The client side of an exchange: one pure function of a message, told in the order it happens.

It is written for a *lane*: one client (the loop engine, a Flower node) or a stack of ``m`` clients
with one more leading dimension (the vmap engine). A lane offers two verbs, ``measure`` and
``descend``; training, probes, losses at points, further tracks and personal models are uses of the
two. All functions run on the thread of the worker that has the lane, and write to no tensor that
they are given. In all signatures ``buffers`` is ``[b]`` or ``[m, b]``, and ``state`` holds, by part
and name, ``[...]`` or ``[m, ...]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedparity.engines.lane import Beside, End, Lane, Rule, Tree
from fedparity.learning.seeds import unknown_to_all
from fedparity.method.client import SHARED, Client
from fedparity.method.facts import BEFORE, FACTS
from fedparity.method.hints import is_stacked
from fedparity.method.messages import SERVER, Down, Named, Own, Reply, Up
from fedparity.method.part import Part
from fedparity.method.reports import LARGEST

MET = frozenset(name for name, fact in FACTS.items() if fact.when == "steps")


def answer(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Return the answer to a message; only training changes what a client keeps."""
    if down.phase == "losses":
        return losses(lane, down, buffers, state)
    if down.phase == "probe":
        return probe(lane, down, buffers, state)
    return train(lane, down, buffers, state)


def train(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Run one client's part of a round: start, measure, descend, finish, seal."""
    algorithm = lane.algorithm
    tree, start = _begin(lane, down, state)
    tree = _with_facts(lane, tree, down, start, buffers, algorithm.train_reads)
    wanted = algorithm.train_reads & MET
    rule = _rule(lane, down, tree, wanted)
    if algorithm.having("tracks"):
        tree, end = _with_tracks(lane, down, tree, start, buffers, rule)
    else:
        end = lane.descend(start, buffers, rule)
    if not (algorithm.having("finish") or algorithm.having("seal")):
        return Up({}, end.delta, end.buffers, state)
    facts = {**tree["facts"], **end.met}
    if "end_loss" in algorithm.train_reads:
        found = lane.measure(end.parameters(), end.buffers, frozenset({"loss"}))
        facts["end_loss"] = found["loss"]
    tree = {**tree, "facts": facts, "carried": end.carried or {}}
    return _finished(lane, tree, down, end)


def probe(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Measure where training would start; nothing is trained and no state changes."""
    reads = lane.algorithm.probe_reads
    tree, start = _begin(lane, down, state)
    tree = _with_facts(lane, tree, down, start, buffers, reads)
    if "first_grad" in reads:
        rule = _rule(lane, down, tree, frozenset({"first_grad"}), corrected=False)
        met = lane.descend(start, buffers, rule, steps=1).met
        tree = {**tree, "facts": {**tree["facts"], **met}}

    def report(tree: Tree) -> Named:
        reports = {p.name: dict(p.probe(c)) for p, c in _views(lane, "probe", tree, down)}
        return _sealed(lane, tree, down, reports).reports

    return Up(lane.lift(report)(tree))


def losses(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Up:
    """Measure training losses at ``x``, or at ``T`` points along a direction from it.

    They are reported as ``[1]`` or ``[T]``, of a stack ``[m, 1]`` or ``[m, T]``.
    """
    told, x = down.shared.get(SERVER, {}), down.x
    points = [x + f * told["direction"] for f in told["factors"]] if told else [x]
    wanted = frozenset({"loss"})
    found = torch.stack([lane.measure(lane.spread(y), buffers, wanted)["loss"] for y in points], -1)
    if told:  # far out, losses overflow
        found = found.nan_to_num(LARGEST, LARGEST).clamp_max(LARGEST)
    reports = {SERVER: {"along" if told else "losses": found}}
    if lane.algorithm.having("seal"):

        def seal(tree: Tree, reports: Named) -> Named:
            return _sealed(lane, tree, down, reports).reports

        reports = lane.lift(seal)(_tree(lane, down, state), reports)
    return Up(reports)


def personal(lane: Lane, down: Down, buffers: Tensor, state: Named) -> Own:
    """Return the model that each client of the lane would really use, part after part."""
    tree, x, shares = _tree(lane, down, state), lane.spread(down.x), None
    for part in lane.algorithm.parts:
        if part.tuning:
            rule = _rule(lane, down, tree, track=f"{part.name}/tuned")
            end = lane.descend(x, buffers, rule, part.tuning)
            x, buffers = end.parameters(), end.buffers
        if "personal" in part.hooks:
            x = lane.lift(_hook(lane, part, "personal", down))(tree, x)
        if "mixture" in part.hooks:
            x, shares = lane.lift(_hook(lane, part, "mixture", down))(tree, x)
    return Own(x, buffers, shares)


def _hook(lane: Lane, part: Part, hook: str, down: Down) -> Callable[[Tree, Tensor], Any]:
    """Return a hook that changes one client's parameters ``[d]``, as a function of its tree."""
    rule = Rule({}, lane.layout, down, lane.progress, {})
    return lambda tree, x: getattr(part, hook)(x, rule.view(part, hook, tree))


def _tree(lane: Lane, down: Down, state: Named) -> Tree:
    """Return what is known of the clients before anything is measured."""
    if not lane.algorithm.parts:  # nobody looks
        return {"facts": {}}
    private = lane.algorithm.having("guarantee")
    return {
        **({"secret": unknown_to_all(lane.seed)} if private else {}),
        "each": {part: dict(tensors) for part, tensors in down.each.items()},
        "state": state,
        "facts": {},
        "n": lane.n.to(down.x.dtype),
        "steps": lane.steps.to(down.x.dtype),
        "seed": lane.seed,
    }


def _begin(lane: Lane, down: Down, state: Named) -> tuple[Tree, Tensor]:
    """Return what is known before the first step, and the start of the shared track.

    That is ``[d]``, or ``[m, d]``.
    """
    tree, start = _tree(lane, down, state), lane.spread(down.x)
    if lane.algorithm.having("start"):

        def place(tree: Tree, y: Tensor) -> Tensor:
            for part, c in _views(lane, "start", tree, down):
                y = part.start(y, c)
            return y

        start = lane.lift(place)(tree, start)
        tree = {**tree, "anchor": start}
    return tree, start


def _with_facts(
    lane: Lane, tree: Tree, down: Down, start: Tensor, buffers: Tensor, reads: frozenset[str]
) -> Tree:
    """Return the tree with the facts at the start, and those at the points of ``at``."""
    own = frozenset(lane.algorithm.own_facts)
    wanted = reads & ((BEFORE - {"first_contact"}) | own)
    if wanted:
        tree = {**tree, "facts": lane.measure(start, buffers, wanted)}
    pointed = lane.algorithm.pointed(down.phase)
    if not pointed:
        return tree

    def at(tree: Tree) -> Named:
        views = _views(lane, "at", tree, down)
        return {p.name: dict(p.at(c)) for p, c in views if p in pointed}

    found = lane.lift(at)(tree)
    points = {
        part.name: {
            name: lane.measure(found[part.name][name], buffers, facts)
            for name, facts in part.points.items()
        }
        for part in pointed
    }
    return {**tree, "points": points}


def _with_tracks(
    lane: Lane, down: Down, tree: Tree, start: Tensor, buffers: Tensor, rule: Rule
) -> tuple[Tree, End]:
    """Train the parts' own tracks, each as the shared one, and it; the tree has where they end.

    Tracks of a part that looks at the shared one go side by side with it, all others before it.
    """

    def begin(tree: Tree) -> Named:
        return {p.name: dict(p.tracks(c)) for p, c in _views(lane, "tracks", tree, down)}

    looking = {part.name for part in lane.algorithm.having("look")}
    ends: Named = {}
    beside: dict[tuple[str, str], Beside] = {}
    for part, starts in lane.lift(begin)(tree).items():
        ends[part] = {}
        for name, own in starts.items():
            own_rule = _rule(lane, down, tree, track=f"{part}/{name}")
            if part in looking:
                beside[part, name] = Beside(own, own_rule)
            else:
                ends[part][name] = lane.descend(own, buffers, own_rule).parameters()
    end = lane.descend(start, buffers, rule, beside=tuple(beside.values()))
    for (part, name), led in zip(beside, end.beside, strict=True):
        ends[part][name] = led
    return {**tree, "ends": ends}, end


def _finished(lane: Lane, tree: Tree, down: Down, end: End) -> Up:
    """Let the parts report and keep what they want, and seal what leaves."""
    algorithm = lane.algorithm
    as_it_is = all(is_stacked(part.finish) for part in algorithm.having("finish"))
    if as_it_is:
        delta, reports, states = _finish(lane, tree, down, end.delta, end.parameters)
        if not algorithm.having("seal"):
            return Up(reports, delta, end.buffers, states)

        def seal(tree: Tree, delta: Tensor, buffers: Tensor, reports: Named) -> Reply:
            return _sealed(lane, tree, down, reports, delta, buffers)

        sealed = lane.lift(seal)(tree, delta, end.buffers, reports)
        return Up(sealed.reports, sealed.delta, sealed.buffers, states)

    def finish(
        tree: Tree, delta: Tensor, y: Tensor, buffers: Tensor
    ) -> tuple[Tensor, Tensor, Named, Named]:
        delta, reports, states = _finish(lane, tree, down, delta, lambda: y)
        sealed = _sealed(lane, tree, down, reports, delta, buffers)
        return sealed.delta, sealed.buffers, sealed.reports, states

    lifted = lane.lift(finish)
    delta, ended, reports, states = lifted(tree, end.delta, end.parameters(), end.buffers)
    return Up(reports, delta, ended, states)


def _finish(
    lane: Lane, tree: Tree, down: Down, delta: Tensor, after: Callable[[], Tensor]
) -> tuple[Tensor, Named, Named]:
    reports: Named = {}
    states: Named = {part: dict(tensors) for part, tensors in tree["state"].items()}
    for part, c in _views(lane, "finish", tree, down, after=after):
        done = part.finish(delta, c)
        delta = done.delta
        if done.report:
            reports[part.name] = dict(done.report)
        if done.state:
            states[part.name] = dict(done.state)
    return delta, reports, states


def _sealed(
    lane: Lane,
    tree: Tree,
    down: Down,
    reports: Named,
    delta: Tensor | None = None,
    buffers: Tensor | None = None,
) -> Reply:
    """Return what leaves one client, after every boundary: update ``[d]``, buffers ``[b]``."""
    none = down.x[:0]
    reply = Reply(none if delta is None else delta, none if buffers is None else buffers, reports)
    for part, c in _views(lane, "seal", tree, down, kinds=lane.algorithm.declared):
        reply = part.seal(reply, c)
    return reply


def _views(
    lane: Lane, hook: str, tree: Tree, down: Down, **more: object
) -> list[tuple[Part, Client]]:
    """Return the parts that use a hook, each with what it sees of the client in ``tree``."""
    rule = Rule({}, lane.layout, down, lane.progress, tree)
    parts = lane.algorithm.having(hook)
    return [(part, rule.view(part, hook, tree, **more)) for part in parts]


def _rule(
    lane: Lane,
    down: Down,
    tree: Tree,
    wants: frozenset[str] = frozenset(),
    track: str = SHARED,
    corrected: bool = True,
) -> Rule:
    """Return the steps of a track; without corrections, no part changes the gradient."""
    acting = lane.algorithm.acting(track)
    return Rule(acting, lane.layout, down, lane.progress, tree, wants, track, corrected)
