"""A small experiment in memory, moved round by round."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedparity.clients.door import Simulation
from fedparity.clients.store import ClientStore
from fedparity.data import Federation
from fedparity.engines import choice
from fedparity.engines.engine import Setup
from fedparity.learning.models import mlp
from fedparity.learning.seeds import generator
from fedparity.learning.solver import Solver
from fedparity.learning.task import Classification, Task
from fedparity.method import Part
from fedparity.method.messages import Down, Replies
from fedparity.run import lstar, lstar_rules
from fedparity.run.experiment import Experiment

Flat = dict[str, Tensor]


def unlike_clients(sizes: Sequence[int] = (9, 4, 1, 6), seed: int = 0) -> Federation:
    """Return a small classification of unlike clients, in float64.

    ``sizes`` are training examples; the third client and every fourth after it has no validation
    or test example, the others have three of each. Examples are of the groups a and b of the kind
    ``group``.
    """
    rng = generator(seed, "unlike clients")
    client, part = [], []
    for k, n in enumerate(sizes):
        held_out = [] if k % 4 == 2 else ["validation", "test"] * 3
        part += ["train"] * n + held_out
        client += [k] * (n + len(held_out))
    x = rng.standard_normal((len(client), 3)) + 0.5 * np.asarray(client)[:, None]
    y = (x @ rng.standard_normal((3, 3)) + rng.standard_normal((len(x), 3))).argmax(1)
    groups = {"group": np.where(x[:, 0] > 0.5, "a", "b")}
    return Federation.from_arrays(x, y, client, part, outputs=3, groups=groups)


def small_net(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    """Return a network of three layers and 57 parameters for inputs of three numbers."""
    return mlp(shape, outputs, hidden=4)


@dataclass(frozen=True)
class Trial:
    """The conditions under which a part is checked."""

    federation: Federation = field(default_factory=unlike_clients)
    task: Task = field(default_factory=lambda: Classification(small_net))
    solver: Solver = field(default_factory=lambda: Solver(lr=0.1, steps=3, batch=4))
    rounds: int = 3
    seed: int = 1
    tolerance: float = 1e-12
    """How far two ways of computing may be apart, to the largest entry: rounding, in float64. A
    part that solves a problem to less says so here."""

    def experiment(self, parts: Sequence[Part], **conditions: object) -> Experiment:
        """Return the experiment of these parts, in float64 unless told otherwise."""
        known: dict[str, object] = {"dtype": "float64", "weighting": "uniform", **conditions}
        return Experiment(
            self.federation,
            self.task,
            list(parts),
            rounds=self.rounds,
            solver=self.solver,
            seed=self.seed,
            lstar=f"best_validation(rounds={self.rounds})",
            **known,  # type: ignore[arg-type]
        )


class Bench:
    """An experiment in memory, moved round by round, with all its state in the open."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        setup = replace(experiment.setup, module=copy.deepcopy(experiment.setup.module))
        self.x, self.buffers = setup.layout.read(setup.module)
        if any("lstar" in part.reads for part in setup.algorithm.parts):
            setup = replace(setup, lstar=self._lstar(setup))
        self.setup = setup
        self.engine = choice.make(setup, experiment.choice.name, experiment.chunk)
        self.context = experiment.context(self.x)
        self.restart()

    def _lstar(self, setup: Setup) -> Tensor:
        table = self.experiment.given
        if table is None:
            rule = lstar_rules.rule(str(self.experiment.lstar))
            table = lstar.estimate(setup, rule, self.experiment.choice.name)
        return torch.from_numpy(lstar.deciding(table)).to(self.x.dtype)

    def restart(self) -> None:
        """Go back to before the first round."""
        setup, x, buffers = self.setup, self.x, self.buffers
        self.store = ClientStore(
            setup.algorithm,
            setup.layout,
            x,
            buffers,
            len(setup.federation),
            setup.local_buffers,
            setup.most_examples,
        )
        self.door = Simulation(self.engine, self.store)
        self.server = setup.algorithm.init(x, buffers, self.context)
        self.round = 0

    def advance(self, answering: Sequence[int] | None = None, probed: bool = False) -> Replies:
        """Run one round in which only these clients answer (None: all) and return the replies.

        Where nobody answers, as when a part leaves out all who would, they are those of nobody.

        ``probed`` lets the others answer the probe and drop out before training.
        """
        self.round += 1
        lr = self.experiment.solver.rate(self.round)
        ctx = replace(self.context, round=self.round, lr=lr, x=self.server.x)

        heard: list[Replies] = []

        def ask(down: Down, cohort: Tensor) -> Replies:
            if answering is not None and not (probed and down.phase == "probe"):
                cohort = cohort[torch.isin(cohort, torch.tensor(answering))]
            heard.append(self.door.ask(down, cohort))
            return heard[-1]

        everyone = torch.arange(len(self.setup.federation))
        self.server, replies = self.setup.algorithm.round(self.server, everyone, ask, ctx)
        return heard[-1] if replies is None else replies

    def tensors(self) -> Flat:
        """Return parameters, buffers and all state by name, the clients' rows in their order."""
        flat = {"x": self.server.x, "buffers": self.server.buffers}
        for part, state in self.server.parts.items():
            flat |= {f"server/{part}/{key}": value for key, value in state.items()}
        kept = self.store.gather(np.arange(len(self.setup.federation)))
        for part, state in kept.items():
            flat |= {f"client/{part}/{key}": value for key, value in state.items()}
        return flat
