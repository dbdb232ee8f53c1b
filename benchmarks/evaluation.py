"""Evaluation of all clients against one pooled pass over the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from contest import Contestant, Rounds, experiment, federation, turns, turns_of
from report import Bar, Section, number
from torch import nn
from workloads import WORKLOADS, Workload

from fedparity.data import Split
from fedparity.method.messages import Down

COST = 1.15
ROWS = 1000
"""Examples a step of the pooled pass; larger ones are slower here, since they leave the cache."""
MORE = 5
"""Times the repeats of other sections, but for the cnn: a turn is short."""


class Pooled:
    """Mean loss and accuracy over all examples, as one writes it."""

    def __init__(self, module: nn.Module, data: Split) -> None:
        self.module, self.data = module.eval(), data

    @torch.inference_mode()
    def __call__(self) -> tuple[float, float]:
        loss = right = 0.0
        for x, y in zip(self.data.x.split(ROWS), self.data.y.split(ROWS), strict=True):
            output = self.module(x)
            loss += float(nn.functional.cross_entropy(output, y, reduction="sum"))
            right += float((output.argmax(1) == y).sum())
        return loss / len(self.data), right / len(self.data)


def measure(names: Sequence[str], repeats: int) -> Section:
    """Time both, in turns."""
    section = Section(
        "Evaluation",
        "Milliseconds to evaluate loss and accuracy of every client, and of one pooled pass over "
        "the same examples with one thread or two, whichever is faster.",
        ("workload", "examples", "all clients", "pooled pass", "ratio"),
    )
    for name in (n for n in names if n in ("lin", "mlp", "cnn")):
        workload = _smaller(WORKLOADS[name])
        data = federation(workload)
        rounds = Rounds(experiment(workload, data=data))
        down = Down("evaluate", 0, 0.0, rounds.state.server.x, rounds.state.server.buffers)
        pooled = Pooled(experiment(workload, data=data).setup.module, data.train)
        times = turns(
            [
                Contestant("ours", lambda r=rounds, d=down: r.run.door.evaluate(d, "train")),
                Contestant("pooled, 1", pooled),
                Contestant("pooled, 2", pooled, threads=2),
            ],
            turns_of(workload, repeats, MORE),
        )
        rounds.close()
        best = times.fastest("pooled, 1", "pooled, 2")
        ratio = times.ratio("ours", best)
        shown = (number(times.median(who)) for who in ("ours", best))
        cells = (f"{len(data.train):,}", *shown, f"{ratio:.2f}x")
        section.rows.append((name, *cells))
        section.bars.append(Bar(f"{name}: evaluation to a pooled pass", ratio, COST))
    return section


def _smaller(workload: Workload) -> Workload:
    """Return the workload with a tenth of the clients where a pass would take long."""
    if workload.model != "cnn":
        return workload
    return replace(workload, clients=workload.clients // 10)
