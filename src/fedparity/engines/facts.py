"""Facts that are known without the model, and those that are means over single examples.

Workers call these functions; they write to nothing but the mode of the model that they are given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from fedparity.engines.engine import Ids, Setup
from fedparity.engines.evaluation import blocks
from fedparity.errors import FedparityError
from fedparity.learning.device import wide
from fedparity.learning.task import Task
from fedparity.method.facts import ByGroup, OwnFact
from fedparity.method.hints import looks_at_losses, of_losses

AtRows = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(losses, output, target, rows)`` of a batch to numbers an example, ``[B, ...]``.

``rows [B]`` are the examples' places in the training split."""


def known_facts(setup: Setup, clients: int | Ids, names: frozenset[str]) -> dict[str, Tensor]:
    """Return the facts that no parameters change: of one client ``[...]``, of some ``[m, ...]``."""
    rows = torch.from_numpy(clients) if isinstance(clients, np.ndarray) else clients
    found: dict[str, Tensor] = {}
    if "lstar" in names:
        found["lstar"] = known_lstar(setup)[rows]
    if "label_counts" in names:
        found["label_counts"] = setup.label_counts[rows]
    return found


def known_lstar(setup: Setup) -> Tensor:
    """Return every client's L*, ``[K]``, or say that nobody computed it."""
    if setup.lstar is None:
        raise FedparityError(
            "a part reads c.lstar, but L* was not computed: lstar must not be 'none'"
        )
    return setup.lstar


def per_example(setup: Setup, names: frozenset[str]) -> dict[str, AtRows]:
    """Return those of the facts that are means over examples, each with its function of a batch."""
    own = setup.algorithm.own_facts
    found = {name: _at_rows(setup, own[name].own_facts[name]) for name in names if name in own}
    if "accuracy" in names:
        found["accuracy"] = right_of(setup.task)
    return found


def _at_rows(setup: Setup, fact: OwnFact) -> AtRows:
    """Return a part's own fact as a function that is given the examples' rows too."""
    if not isinstance(fact, ByGroup):
        plain = fact

        def at_rows(losses: Tensor, output: Tensor, target: Tensor, rows: Tensor) -> Tensor:
            return plain(losses, output, target)

        return of_losses(at_rows) if looks_at_losses(plain) else at_rows
    codes, of = setup.codes[fact.kind], fact.of
    count = len(setup.federation.groups[fact.kind])

    def by_group(losses: Tensor, output: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        values = of(losses, output, target)
        mine = one_hot(codes.index_select(0, rows.to(codes.device)), count).to(values.dtype)
        return values[..., None] * mine.view(len(mine), *[1] * (values.dim() - 1), count)

    return by_group


def right_of(task: Task) -> AtRows:
    """Return the function that tells of each example of a batch, ``[B]``, how right it is."""
    return lambda losses, output, target, rows: task.metrics(output, target)["accuracy"]


@torch.no_grad()
def right_examples(setup: Setup, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return how right each example of a client is, ``[longest]``, 0 behind its last one."""
    module.eval()
    each = [setup.task.metrics(module(x[rows]), y[rows])["accuracy"] for rows in blocks(x)]
    return pad(torch.cat(each), (0, setup.most_examples - len(x)))


@torch.no_grad()
def example_means(
    setup: Setup, module: nn.Module, client: int, x: Tensor, y: Tensor, functions: dict[str, AtRows]
) -> dict[str, Tensor]:
    """Return the mean of each function over the examples ``x``, ``y`` that one client trains on.

    ``module`` is put into eval mode. Sums are in float64 where the device has it.
    """
    module.eval()
    kept, task = wide(x.device), setup.task
    sums = dict.fromkeys(functions, torch.zeros((), dtype=kept, device=x.device))
    kind, first = x.dtype, int(setup.federation.train.offsets[client])
    for rows in blocks(x):
        output = module(x[rows])
        losses, kind = task.losses(output, y[rows]), output.dtype
        seen = losses, output, y[rows], first + torch.arange(rows.start, rows.start + len(losses))
        for name, function in functions.items():
            sums[name] = sums[name] + function(*seen).to(kept).sum(0)
    return {name: (total / len(x)).to(kind) for name, total in sums.items()}
