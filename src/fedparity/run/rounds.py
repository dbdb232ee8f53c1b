"""The rounds of a run: what they need is opened, and each moves the state by one."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedparity.clients.door import Attendance, Door, Simulation
from fedparity.clients.store import ClientStore
from fedparity.engines import choice
from fedparity.engines.engine import Ids, Setup
from fedparity.method.algorithm import ask_losses, ctx_for
from fedparity.method.messages import Down, Replies
from fedparity.method.privacy import Guarantee
from fedparity.records.history import SERVER, History
from fedparity.records.releases import Releases
from fedparity.records.rundir import RunDir
from fedparity.records.state import SCHEMA, Kept, RunState
from fedparity.reports.tracking import Track
from fedparity.run import lstar, lstar_cache, lstar_rules
from fedparity.run.alone import Alone
from fedparity.run.experiment import Experiment
from fedparity.run.telling import Telling
from fedparity.run.watching import Silent, Watcher

AHEAD = 16
"""Rounds whose cohorts are drawn at once."""
MOST_TOLD = 1 << 19
"""Replies of a run of which weights and reports are kept; of more, those of some rounds."""


class Rounds:
    """The state before the first round of an experiment, and one round after another."""

    keeps_data = True
    """Whether the examples are here, and not at sites."""

    def __init__(
        self,
        experiment: Experiment,
        out: str | Path | None = None,
        watch: Watcher | None = None,
        track: Track = (),
    ) -> None:
        self.experiment = experiment
        self.telling = Telling(track, experiment.federation.names, experiment.setup.metrics)
        self.folder = RunDir(out) if out is not None else None
        self.unwatched = watch is None
        self.watch: Watcher = Silent() if watch is None else watch
        self.lstar: pd.DataFrame | None = None
        self.history = History(experiment.federation.names)
        self.ahead, self.drawn = AHEAD, dict[int, Ids]()
        self.told_every = -(-experiment.rounds * experiment.cohort_size // MOST_TOLD)
        self.alone: Alone | None = None
        self.releases: Releases | None = None

    def open(self) -> RunState:
        """Prepare engine, clients and server; return the state before the first round."""
        experiment = self.experiment
        self.lstar = self._lstar()
        decided = None if self.lstar is None else lstar.deciding(self.lstar)
        dtype = torch.float64 if experiment.dtype == "float64" else torch.float32
        known = None if decided is None else torch.from_numpy(decided).to(dtype)
        # A run moves a module of its own, so that the experiment can be run again.
        setup = replace(
            experiment.setup, lstar=known, module=copy.deepcopy(experiment.setup.module)
        )
        self.module = setup.module
        x, buffers = setup.layout.read(setup.module)
        self.door, store = self._door(setup, x, buffers)
        self.context = experiment.context(x)
        return RunState(
            0,
            setup.algorithm.init(x, buffers, self.context),
            store,
            answered=torch.zeros(len(experiment.federation), dtype=torch.int64),
            sampling=experiment.drawing.init(experiment.population),
            identity={"schema": SCHEMA, **experiment.identity()},
        )

    def _door(self, setup: Setup, x: Tensor, buffers: Tensor) -> tuple[Door, Kept]:
        """Return the door to the clients, here in this process, and what is kept of them."""
        experiment = self.experiment
        engine = choice.make(setup, experiment.choice.name, experiment.chunk)
        store = ClientStore(
            setup.algorithm,
            setup.layout,
            x,
            buffers,
            len(experiment.federation),
            setup.local_buffers,
            setup.most_examples,
        )
        return Simulation(engine, store, experiment.drop, experiment.min_replies), store

    def close(self) -> None:
        """Give back what :meth:`open` took, and what rounds have opened."""
        self.door.close()
        if self.folder is not None:
            self.folder.close()

    def round(self, state: RunState) -> None:
        """Move the state by one round."""
        experiment, t = self.experiment, state.round + 1
        ctx = replace(
            self.context,
            round=t,
            lr=experiment.solver.rate(t),
            x=state.server.x,
            answered=state.answered,
        )
        cohort, sampling, silent = self._draw(state)
        server, replies = state.server, None
        if len(set(cohort.tolist())) < len(cohort):
            drawn = np.bincount(cohort, minlength=ctx.population)
            ctx, cohort = replace(ctx, times=torch.from_numpy(drawn)), np.unique(cohort)
        self.door.attendance = Attendance(0 if len(cohort) else t)  # the door fills in who is asked
        if len(cohort):
            server, replies = experiment.setup.algorithm.round(
                server, torch.from_numpy(cohort), self.door.ask, ctx, experiment.server_lr
            )
        elif silent:  # they were asked for losses, which may have left them
            asked = torch.tensor(sorted(silent))
            vain = replace(ctx_for(ctx, asked), asked=asked)
            server = experiment.setup.algorithm.in_vain(server, vain)
        self.door.attendance.failed |= silent
        state.server, state.sampling, state.round = server, sampling, t
        if replies is not None:
            self._tell(state, replies)
            state.empty = 0
            state.answered[replies.clients] += 1
        elif len(cohort) or silent:  # else nobody was there to be asked, which is no failure
            state.empty += 1

    def _tell(self, state: RunState, replies: Replies) -> None:
        """Remember weights, reports of one number a client, and what parts tell."""
        if state.round % self.told_every:
            return
        told = {
            (part, name): value
            for part, reports in replies.reports.items()
            for name, value in reports.items()
            if value.dim() == 1
        }
        if replies.weights is not None:
            told[SERVER, "weight"] = replies.weights
        numbers = {key: value.detach().double().numpy() for key, value in told.items()}
        for part, said in self._told(state).items():
            numbers |= {(part, name): np.asarray(value) for name, value in said.items()}
        sizes = self.experiment.federation.train.sizes
        self.history.tell(state.round, replies.clients.numpy(), numbers, sizes)

    def _draw(self, state: RunState) -> tuple[Ids, dict[str, Tensor], dict[int, str]]:
        """Return the next round's cohort, the sampling's new state, and who told no loss, and why.

        Where losses are asked for, that is an exchange of the round.
        """
        experiment, silent = self.experiment, dict[int, str]()
        if experiment.drawing.ahead:
            return self._cohort(state.round + 1), state.sampling, silent

        def losses(clients: Ids) -> tuple[Ids, Tensor]:
            server, t = state.server, state.round + 1
            down = Down("losses", t, experiment.solver.rate(t), server.x, server.buffers)
            told = ask_losses(down, torch.from_numpy(clients), self.door.ask)
            for client in np.setdiff1d(clients, told.clients.numpy()).tolist():
                silent[client] = self.door.attendance.failed.get(client, "told no loss")
            return told.clients.numpy(), told.values[:, 0]

        cohort, after = experiment.drawing.draw(
            state.round + 1, state.sampling, experiment.population, losses
        )
        return cohort, after, silent

    def _cohort(self, round: int) -> Ids:
        """Return the cohort of a round; between training, drawing one costs as much as several."""
        experiment = self.experiment
        if round not in self.drawn:
            ahead = self.ahead if experiment.cohort_size < len(experiment.federation) else 1
            last = max(round, min(round + ahead - 1, experiment.rounds))
            self.drawn = {t: experiment.sample(t) for t in range(round, last + 1)}
        return self.drawn.pop(round)

    def _lstar(self) -> pd.DataFrame | None:
        """Return L*, kept with the run so that a resume finds the same."""
        experiment, setup = self.experiment, self.experiment.setup
        if experiment.lstar == "none":
            return None
        if self.folder is not None:
            self.folder.verify_lstar()
            table = lstar_cache.read(self.folder.lstar, setup)
            if table is not None:
                return table
        began = time.perf_counter()
        table = experiment.given
        if table is None:
            rule = lstar_rules.rule(str(experiment.lstar))
            tell = lstar.telling(self.watch, setup, rule)
            self.alone = lstar_cache.kept(setup, rule, experiment.choice.name, tell)
            table = self.alone.table
        self._keep_lstar(table, time.perf_counter() - began)
        return table

    def _keep_lstar(self, table: pd.DataFrame, seconds: float) -> None:
        """Write L* beside the run, and in its log how it was come by."""
        if self.folder is None:
            return
        self.folder.write_table(self.folder.lstar, table)
        self.folder.note(
            round=0,
            lstar="given" if self.experiment.given is not None else self.experiment.lstar,
            rounds=int(table["rounds"].max()),
            capped=table.loc[table["capped"], "client"].tolist(),
            seconds=round_(seconds),
        )

    def _told(self, state: RunState) -> dict[str, dict[str, float]]:
        """Return the numbers that parts want recorded."""
        parts = self.experiment.setup.algorithm.having("tell")
        return {part.name: part.tell(state.server.parts.get(part.name, {})) for part in parts}

    def _guarantees(self, state: RunState) -> dict[str, Guarantee]:
        """Return what the parts say of the clients' privacy."""
        parts, kept = self.experiment.setup.algorithm.having("guarantee"), state.server.parts
        found = {p.name: p.guarantee(kept.get(p.name, {}), self.context) for p in parts}
        because = "" if self.releases is None else self.releases.because
        return {
            name: replace(told, epsilon=None, next=None, because=because) if because else told
            for name, told in found.items()
            if told is not None
        }

    def _privacy(self, state: RunState) -> dict[str, dict[str, Any]]:
        """Return the same as plain values."""
        return {name: each.record() for name, each in self._guarantees(state).items()}

    def _spent(self, state: RunState) -> str | None:
        """Return that a privacy budget allows no further round, if it is so."""
        for name, each in self._guarantees(state).items():
            if each.spent:
                return (
                    f"after {state.round} rounds '{name}' has spent epsilon {each.epsilon:.4g}: "
                    f"one more round would make it {each.next:.4g}, over its budget of "
                    f"{each.budget:.4g}"
                )
        return None


def round_(seconds: float) -> float:
    """Return seconds to the tenth of a millisecond."""
    return round(seconds, 4)
