"""Rounds whose replies are written by hand, and clients whose losses are parabolas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedparity.data import Federation
from fedparity.learning.layout import Layout
from fedparity.learning.models import mlp
from fedparity.learning.solver import Solver
from fedparity.learning.task import Regression
from fedparity.method import Context, Grouping, Part
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Down, Replies, Server
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench

W = (1.0, 2.0)
"""The numeric fixture: the server's parameters, the clients' after training, losses and sizes."""
W_1, W_2, W_3 = (0.8, 1.5), (1.2, 1.9), (0.5, 2.3)
PRE = (1.0, 2.0, 0.5)
SIZES = (50, 25, 25)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def matrix(*rows: Sequence[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


FIXTURE = matrix(W_1, W_2, W_3) - vector(*W)
"""The displacements of the fixture."""


class Script:
    """An algorithm in rounds whose replies are given; ``server`` is where it stands."""

    def __init__(
        self,
        parts: Sequence[Part],
        x: Tensor | None = None,
        n: Sequence[int] = SIZES,
        *,
        lr: float = 0.1,
        by_size: bool = True,
        cohort: int | None = None,
        solver: Solver | None = None,
        seed: int = 0,
        groups: Mapping[str, Grouping] | None = None,
    ) -> None:
        x = vector(*W) if x is None else x
        self.algorithm = Algorithm(parts)
        self.context = Context(
            round=0,
            population=len(n),
            sizes=torch.tensor(n),
            clients=torch.arange(len(n)),
            prior=x.new_zeros(0),
            steps=torch.ones(len(n), dtype=torch.int64),
            lr=lr,
            x=x,
            layout=Layout(nn.Linear(len(x), 1, bias=False)),
            by_size=by_size,
            cohort=len(n) if cohort is None else cohort,
            solver=solver or Solver(lr=lr),
            parts=self.algorithm.parts,
            seed=seed,
            groups=groups or {},
            classes=2,
        )
        for part in self.algorithm.parts:
            part.validate(self.context)
        self.server: Server = self.algorithm.init(x, x.new_zeros(0), self.context)
        self.round = 0

    def play(
        self,
        deltas: Tensor,
        clients: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
        times: Sequence[int] = (),
        **reports: Sequence[float] | Tensor,
    ) -> Tensor:
        """Play a round with these replies; every part hears all reports. Return the new ``x``.

        ``times`` says how often each client of the population was drawn.
        """
        self.round += 1
        m = len(deltas)
        ids = torch.tensor(range(m) if clients is None else clients, dtype=torch.int64)
        heard = {key: torch.as_tensor(value, dtype=deltas.dtype) for key, value in reports.items()}
        told = {part.name: heard for part in self.algorithm.parts}
        taken = torch.ones(m, dtype=torch.int64) if steps is None else torch.tensor(steps)

        def ask(down: Down, cohort: Tensor) -> Replies:
            return Replies(ids, taken, told, deltas, deltas.new_zeros(m, 0))

        x = self.server.x
        ctx = Context(
            **{
                **vars(self.context),
                "round": self.round,
                "x": x,
                "times": torch.tensor(times, dtype=torch.int64),
            }
        )
        self.server, _ = self.algorithm.round(self.server, ids, ask, ctx)
        return self.server.x

    def state(self, part: str) -> dict[str, Tensor]:
        return self.server.parts[part]


def parabolas(
    curvatures: Sequence[Sequence[float]], minima: Sequence[Sequence[float]]
) -> Federation:
    """Return clients with the losses ``F_k(x) = sum_j c_kj (x_j - m_kj)^2``.

    Coordinate j is the example ``sqrt(d c_kj) (e_j, m_kj)``, of which the mean of squares is taken.
    """
    d = len(curvatures[0])
    rows, targets, owner = [], [], []
    for k, (c, m) in enumerate(zip(curvatures, minima, strict=True)):
        scale = np.sqrt(d * np.asarray(c))
        rows.append(np.diag(scale))
        targets.append(scale * np.asarray(m))
        owner += [k] * d
    return Federation.from_arrays(
        np.concatenate(rows),
        np.concatenate(targets),
        owner,
        ["train"] * len(owner),
        kind="values",
    )


def line(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One weight a coordinate, and no bias."""
    return nn.Linear(shape[0], 1, bias=False)


def small_net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a network with layers hidden1, hidden2 and out, the inner ones of four units."""
    return mlp(shape, outputs, hidden=4)


def bench(
    federation: Federation,
    algorithm: str | Sequence[Part],
    start: Sequence[float] | None = None,
    *,
    solver: Solver,
    model: Any = line,
    **conditions: Any,
) -> Bench:
    """Return the experiment, round by round, in float64 on the loop engine unless told."""
    known = {"dtype": "float64", "engine": "loop", "lstar": "none", **conditions}
    task = Regression(model) if federation.kind == "values" else model
    made = Bench(Experiment(federation, task, algorithm, solver=solver, **known))
    if start is not None:
        made.server = made.server._replace(x=vector(*start))
    return made


def after(made: Bench, rounds: int = 1) -> Tensor:
    """Return the parameters after so many rounds more."""
    for _ in range(rounds):
        made.advance()
    return made.server.x
