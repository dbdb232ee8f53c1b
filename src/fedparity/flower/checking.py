"""Replies are not trusted: what is wrong with one is said before it is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedparity.clients.reports import wrong_reports
from fedparity.clients.store import ClientStore
from fedparity.engines import choice
from fedparity.engines.engine import Setup, rows_of
from fedparity.flower.census import StandIn
from fedparity.flower.codec import BadMessage, Schema, shown
from fedparity.learning.solver import Solver
from fedparity.learning.task import Task
from fedparity.learning.tasks import TASKS
from fedparity.method.messages import Down, Up
from fedparity.method.reports import wrong_loss
from fedparity.metrics import Metric
from fedparity.run.lstar import ACCURACIES, SPLITS


def expected(setup: Setup, down: Down) -> Schema:
    """Return what the answers to an exchange look like.

    One client with two examples of zeros answers it here: only names, types and shapes count.
    """
    x, buffers = setup.layout.read(setup.module)
    solver = Solver(lr=setup.solver.lr, steps=1)
    tiny = replace(
        setup,
        federation=_two_examples(setup.federation),
        solver=solver,
        lstar=None if setup.lstar is None else setup.lstar[:1],
    )
    store = ClientStore(
        setup.algorithm, setup.layout, x, buffers, 1, setup.local_buffers, tiny.most_examples
    )
    me = np.asarray([0])
    states = store.gather(me)
    own = states["buffers"]["b"] if "buffers" in states else down.buffers
    engine = choice.make(tiny, "loop")
    up = engine.ask(replace(down, each=rows_of(down.each, torch.tensor([0]))), me, own, states)
    if up.deltas is None or up.buffers is None:
        return Schema.of(Up(rows_of(up.reports, 0)))
    sent = up.buffers[0, :0] if "buffers" in states else up.buffers[0]
    return Schema.of(Up(rows_of(up.reports, 0), up.deltas[0], sent))


def check_up(up: Up, setup: Setup, lstar: float = math.nan) -> None:
    """Refuse an answer that is not finite or reports what its parts say is impossible.

    ``lstar`` is the client's L*, for the loss behind a gap; NaN if nobody computed it.
    """
    vectors = [tensor for tensor in (up.deltas, up.buffers) if tensor is not None]
    if not all(bool(tensor.isfinite().all()) for tensor in vectors):
        raise BadMessage("what it sent is not finite")
    for name, found in wrong_reports(setup, up.reports, torch.tensor([lstar])):
        raise BadMessage(f"its '{name}' is {found}")


def check_loss(highest: float, lowest: float, name: str, task: Task) -> None:
    """Refuse a loss that the task cannot have."""
    if type(task) in TASKS.values() and (
        found := wrong_loss(lowest, highest, task.name != "regression")
    ):
        raise BadMessage(f"its '{name}' is {found}")


def check_values(
    found: Mapping[str, float],
    wanted: Iterable[str],
    task: Task,
    metrics: Iterable[Metric] = (),
) -> None:
    """Refuse an evaluation with other names than wanted, or impossible numbers.

    Only one of the ``metrics`` may be NaN: on a client's examples it may have no meaning.
    """
    ranges = {metric.name: (metric.lowest, metric.highest) for metric in metrics}
    names = list(wanted)
    for name in [*(n for n in names if n not in found), *found]:
        if name not in found:
            raise BadMessage(f"it leaves out '{name}'")
        if name not in names:
            raise BadMessage(f"it sends {shown(name)}, which nobody asked for")
    for name, value in found.items():
        metric = name.rpartition("/")[2]
        if metric in ranges and math.isnan(value):
            continue
        if not math.isfinite(value):
            raise BadMessage(f"its '{name}' is {value}")
        lowest, highest = ranges.get(metric, (-math.inf, math.inf))
        if not lowest - 1e-9 <= value <= highest + 1e-9:
            raise BadMessage(f"its '{name}' is {value:g}: not from {lowest:g} to {highest:g}")
        if metric == "loss":
            check_loss(value, value, name, task)
        if metric == "accuracy" and not 0 <= value <= 1 + 1e-9:
            raise BadMessage(f"its '{name}' is {value:g}: not a share")


def check_lstar(
    found: Mapping[str, float], sizes: Mapping[str, int], task: Task, rounds: int
) -> None:
    """Refuse an L* that is missing on a split that the client has, or impossible."""
    for name, most in (("rounds", rounds), ("capped", 1)):
        if found.get(name) not in range(most + 1):
            raise BadMessage(f"its '{name}' alone is {found.get(name)}: not in 0 to {most}")
    for name in ACCURACIES:
        if not 0 <= found.get(name, 0) <= 1 + 1e-9:
            raise BadMessage(f"its '{name}' alone is {found[name]}: not a share")
    check_values(
        {f"alone/{split}/loss": found[split] for split in SPLITS if split in found},
        [f"alone/{split}/loss" for split in SPLITS if sizes[split]],
        task,
    )


def _two_examples(federation: object) -> StandIn:
    assert isinstance(federation, StandIn)

    def two(values: Tensor) -> Tensor:
        return values.new_zeros(values.shape[1:]).expand(2, *values.shape[1:])

    offsets = np.asarray([0, 2])
    known = federation.train
    groups = {kind: np.zeros(2, dtype=codes.dtype) for kind, codes in known.groups.items()}
    train = replace(known, x=two(known.x), y=two(known.y), offsets=offsets, groups=groups)
    return replace(
        federation, names=federation.names[:1], train=train, validation=train, test=train
    )
