"""The driver: round after round, with evaluation, checkpoints and early stop."""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fedparity.clients.door import Attendance, Door
from fedparity.clients.simulated import Simulation
from fedparity.clients.store import ClientStore
from fedparity.engines import choice
from fedparity.engines.engine import Ids, Setup, intraop
from fedparity.engines.evaluation import Values
from fedparity.errors import DivergedError, FedparityError, InputError
from fedparity.method.algorithm import ask_losses
from fedparity.method.messages import Down, Replies
from fedparity.method.privacy import Guarantee
from fedparity.metrics import ClientFrame, Summary, summary_value
from fedparity.records.clients import clients_table
from fedparity.records.divergence import divergence
from fedparity.records.history import SERVER, History
from fedparity.records.model import save_module
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir
from fedparity.records.state import SCHEMA, Kept, RunState
from fedparity.reports.tracking import Track
from fedparity.run import keeping, lstar
from fedparity.run.alone import Alone
from fedparity.run.experiment import Experiment
from fedparity.run.telling import Telling

PAUSE = 10.0
"""Seconds between checkpoints when the experiment does not name rounds."""
AHEAD = 16
"""Rounds whose cohorts are drawn at once."""
KEPT = ("kept_round", "told", "privacy", "stopped", "diverged", "predictions")
"""What is known of a run at its end, for its record."""
MOST_TOLD = 1 << 19
"""Replies of a run of which weights and reports are kept; of more, those of some rounds."""
MOST_EMPTY = 20
"""Empty rounds in a row after which a run gives up."""


class Watcher(Protocol):
    """Whoever wants to know how a run goes."""

    def stage(self, text: str, total: int) -> None:
        """Tell that a stage of ``total`` steps begins."""

    def advance(self, done: int, note: str = "") -> None:
        """Tell how many steps of the stage are done."""


class Silent:
    """A watcher that says nothing."""

    def stage(self, text: str, total: int) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        pass


class Run:
    """One run of an experiment, in memory or in a directory."""

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
        self.telling = Telling(track, experiment.federation.names)
        self.folder = RunDir(out) if out is not None else None
        self.watch: Watcher = watch if watch is not None else Silent()
        self._unwatched = watch is None
        self.lstar: pd.DataFrame | None = None
        self.history = History(experiment.federation.names)
        self._last_saved = time.monotonic()
        self._ended: str | None = None
        """Why no further round was possible."""
        self.ahead, self.drawn = AHEAD, dict[int, Ids]()
        self.told_every = -(-experiment.rounds * experiment.cohort_size // MOST_TOLD)
        self.alone: Alone | None = None

    def start(self) -> Result:
        """Run from the first round."""
        if self.folder is not None:
            self.folder.require_unused()
        with self._held(), intraop(1), self._shown():
            if self.folder is not None:
                self.folder.create(self.experiment.describe())
            return self._go(resumed=False)

    def resume(self) -> Result:
        """Go on from the last checkpoint, or from the start if the run never wrote one."""
        assert self.folder is not None
        self.folder.settings()  # refuses a directory that holds no run
        with self._held(), intraop(1), self._shown():
            if not self.folder.has_checkpoint():
                self.folder.check(self.experiment.describe())
            return self._go(resumed=True)

    def _held(self) -> AbstractContextManager[None]:
        """Hold the run directory, if there is one: nobody else writes to it meanwhile."""
        if self.folder is None:
            return nullcontext()
        return self.folder.held(self.experiment.setup.algorithm.text)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Show how a run goes that nobody else watches."""
        if not self._unwatched:
            yield
            return
        from fedparity.reports.progress import watcher

        with closing(watcher()) as self.watch:
            yield

    def _go(self, resumed: bool) -> Result:
        found = self.folder.newest() if resumed and self.folder is not None else None
        if resumed and self.folder is not None and found is None:
            self.folder.restart()
        state = self.open()
        try:
            if self.folder is not None and found is not None:
                state.load(found)
                if self.experiment.rounds < state.round:
                    raise InputError(
                        f"{self.folder.path} has done {state.round} rounds already, more than "
                        f"{self.experiment.rounds}"
                    )
                self.folder.restore(found, self.history)
                self.folder.reopen(found, self.experiment.rounds)
            else:
                self._keep_preparation()
                self._evaluate(state)
                self._save(state)
            where = None if self.folder is None else self.folder.path
            with self.telling.open(self.experiment.describe(), where):
                if not state.round:
                    self.telling.round(0, {}, {})
                self._rounds(state)
            return self._finish(state)
        finally:
            self.close()

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

    def _keep_preparation(self) -> None:
        """Write down how tables became inputs; a transformer of the user's stays with the user."""
        made = self.experiment.federation.preparation
        if self.folder is not None and made is not None and made.own is None:
            self.folder.write_text(self.folder.preparation, made.text())

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
        self.door.attendance = Attendance(0 if len(cohort) else t)  # the door fills in who is asked
        if len(cohort):
            server, replies = experiment.setup.algorithm.round(
                server, torch.from_numpy(cohort), self.door.ask, ctx, experiment.server_lr
            )
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
            table = lstar.read(self.folder.lstar, setup)
            if table is not None:
                return table
        began = time.perf_counter()
        table = experiment.given
        if table is None:
            rule = lstar.rule(str(experiment.lstar))
            tell = lstar.telling(self.watch, setup, rule)
            self.alone = lstar.kept(setup, rule, experiment.choice.name, tell)
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

    def _rounds(self, state: RunState) -> None:
        experiment = self.experiment
        text = experiment.setup.algorithm.text
        self.watch.stage(f"{text} ({experiment.choice.name})", experiment.rounds)
        self.watch.advance(state.round)
        with interruptible() as interrupted:
            while state.round < experiment.rounds and not self._stopped(state):
                began = time.perf_counter()
                try:
                    self.round(state)
                except DivergedError as error:
                    self._ended = str(error)
                    break
                seconds, t, note = time.perf_counter() - began, state.round, ""
                if t % experiment.evaluation_interval == 0 or t == experiment.rounds:
                    note = self._evaluate(state)
                self._log(state, seconds, note)
                if state.empty >= MOST_EMPTY:
                    raise FedparityError(
                        f"{MOST_EMPTY} rounds in a row without enough replies{self._why()}"
                    )
                if self._due(t):
                    self._save(state)
                self.watch.advance(t, note)
                if interrupted():
                    self._save(state)
                    where = f": fedparity resume {self.folder.path}" if self.folder else ""
                    raise KeyboardInterrupt(f"stopped after round {t}{where}")

    def _why(self) -> str:
        """Return the first reason why a client did not answer, to be told with an error."""
        for client, why in self.door.attendance.failed.items():
            return f" (client '{self.experiment.federation.names[client]}': {why})"
        return ""

    def _due(self, round: int) -> bool:
        every = self.experiment.checkpoint_every
        if every is not None:
            return round % every == 0
        return time.monotonic() - self._last_saved >= PAUSE

    def _save(self, state: RunState) -> None:
        if self.folder is not None:
            self.folder.save(state, self.history)
        self._last_saved = time.monotonic()

    def _log(self, state: RunState, seconds: float, note: str) -> None:
        met, names = self.door.attendance, self.experiment.federation.names
        numbers = {
            "lr": self.experiment.solver.rate(state.round),
            "asked": len(met.asked),
            "answered": len(met.answered),
            "seconds": round_(seconds),
        }
        parts = self._told(state)
        evaluated = self.telling.round(state.round, numbers, parts, note)
        if self.folder is None:
            return
        self.folder.note(
            round=state.round,
            **numbers,
            failed={names[client]: why for client, why in met.failed.items()},
            **({"skipped": True} if state.empty or not met.asked else {}),
            **({"evaluated": evaluated} if evaluated else {}),
            **parts,
            **({"privacy": told} if (told := self._privacy(state)) else {}),
        )

    def _told(self, state: RunState) -> dict[str, dict[str, float]]:
        """Return the numbers that parts want recorded."""
        parts = self.experiment.setup.algorithm.having("tell")
        return {part.name: part.tell(state.server.parts.get(part.name, {})) for part in parts}

    def _guarantees(self, state: RunState) -> dict[str, Guarantee]:
        """Return what the parts say of the clients' privacy."""
        parts, kept = self.experiment.setup.algorithm.having("guarantee"), state.server.parts
        found = {p.name: p.guarantee(kept.get(p.name, {}), self.context) for p in parts}
        return {name: guarantee for name, guarantee in found.items() if guarantee is not None}

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

    def _down(self, state: RunState) -> Down:
        x, shared = self.experiment.setup.algorithm.served(state.server)
        lr = self.experiment.solver.rate(max(1, state.round))  # where clients train before it
        return Down("evaluate", state.round, lr, x, state.server.buffers, shared)

    def _measure(self, down: Down, split: str, round: int) -> Values:
        """Evaluate all clients, remember it, and return the model they would really use."""
        data = getattr(self.experiment.federation, split)
        found = self.door.evaluate(down, split)
        for model, values in found.items():
            self.history.add(round, split, model, values, data.sizes)
        return found.get("personal", found["global"])

    def _evaluate(self, state: RunState) -> str:
        """Evaluate on validation and test, and note whether the watched summaries improved."""
        down = self._down(state)
        splits = [s for s in ("validation", "test") if len(getattr(self.experiment.federation, s))]
        values = {split: self._measure(down, split, state.round) for split in splits}
        for each in self._guarantees(state).values():
            if each.epsilon is not None:
                self.history.note(state.round, each.metric, each.epsilon)
        self.telling.fresh = values
        self._watched(state, values)
        return _headline(values[splits[-1]]) if splits else ""

    def _table(
        self, values: dict[str, Values], base: dict[str, Values] | None = None
    ) -> pd.DataFrame:
        """Return one row a client from the evaluations of splits."""
        return clients_table(self.experiment.federation, values, self.lstar, base)

    def _watched(self, state: RunState, values: dict[str, Values]) -> None:
        keep, stop = self.experiment.keep, self.experiment.stop
        if keep == "last" and stop is None:
            return
        metrics = {metric.name: metric.meaning for metric in self.experiment.setup.metrics}
        frame = ClientFrame(self._table(values), metrics=metrics)
        if keep != "last":
            value = summary_value(frame, keep, split="validation")
            if _better(frame.summaries[keep], value, state.best_value):
                state.best_value, state.best_round = value, state.round
                kept = self._down(state)
                state.best_x, state.best_buffers = kept.x, kept.buffers
        if stop is not None:
            value = summary_value(frame, stop.metric, split="validation")
            if _better(frame.summaries[stop.metric], value, state.stop_value):
                state.stop_value, state.patience = value, 0
            else:
                state.patience += 1

    def _diverged(self, down: Down, clients: pd.DataFrame) -> str | None:
        """Return why a run counts as diverged, with the remedy, or None."""
        if self._ended is not None:
            return self._ended
        why: str | None = "the parameters are not finite"
        if bool(down.x.isfinite().all()):
            why = divergence(clients, self.history.table(), self._untrained)
        if why is None:
            return None
        lr = self.experiment.solver.lr
        return f"{why}: lower the learning rate (now {lr:g}) or clip gradients"

    def _untrained(self) -> npt.NDArray[np.float64]:
        """Return the clients' training losses before the first round."""
        setup = self.experiment.setup
        down = Down("evaluate", 0, 0.0, *setup.layout.read(setup.module))
        return self.door.evaluate(down, "train")["global"]["loss"]

    def _stopped(self, state: RunState) -> bool:
        stop = self.experiment.stop
        if stop is not None and state.patience >= stop.patience:
            return True
        return self._spent(state) is not None

    def _finish(self, state: RunState) -> Result:
        experiment, settings = self.experiment, self.experiment.describe()
        self._save(state)
        down = self._down(state)
        if state.best_x is not None and state.best_buffers is not None:
            down = replace(down, x=state.best_x, buffers=state.best_buffers)
            settings["record"]["kept_round"] = state.best_round
        shown = settings["record"].get("kept_round", state.round)
        if told := self._told(state):
            settings["record"]["told"] = told
        if privacy := self._privacy(state):
            settings["record"]["privacy"] = privacy
        if state.round < experiment.rounds and (spent := self._spent(state)):
            settings["record"]["stopped"] = spent
        values: dict[str, Values] = {}
        for split in ("train", "validation", "test"):
            if len(getattr(experiment.federation, split)):
                found = self.door.evaluate(down, split)
                values[split] = found.get("personal", found["global"])
                if split == "train":
                    sizes = experiment.federation.train.sizes
                    for model, numbers in found.items():
                        self.history.add(shown, split, model, numbers, sizes)
        base = {split: self.door.base(split) for split in values if split != "train"}
        alone = self._recalled()
        clients = self._table(values, base).assign(rounds_answered=state.answered.numpy())
        clients = keeping.with_metrics_alone(clients, self.door, alone)
        examples, cut = keeping.predictions(experiment, self.door, down, alone)
        if cut:
            settings["record"]["predictions"] = cut
        settings["record"]["diverged"] = diverged = self._diverged(down, clients)
        module = experiment.setup.layout.write(self.module, down.x, down.buffers).eval()
        path = None
        if self.folder is not None:
            path = self.folder.path
            self.folder.write_table(self.folder.history, self.history.table())
            with self.folder.checksums.placing(self.folder.model) as beside:
                save_module(module, beside)
            self._keep_more(state, examples, alone)
            found = {k: v for k, v in settings["record"].items() if k in KEPT}
            self.folder.update(experiment.rounds, **found)
            self.folder.write_table(self.folder.clients, clients)  # the last: it tells of the end
            self.folder.finished()
        result = Result(clients, self.history.table(), settings, state.round, module, path)
        curves = None if alone is None else alone.curves
        result.keep(examples, curves, experiment.setup.task, experiment.federation.preparation)
        if path is not None:
            from fedparity.reports.html import write

            write(result)
        if diverged is not None:
            warnings.warn(f"'{result.record['written_as']}' diverged: {diverged}", stacklevel=2)
        return result

    def _recalled(self) -> Alone | None:
        """Return what training each client alone left, if it is here or was kept."""
        experiment = self.experiment
        if experiment.lstar == "none" or experiment.given is not None:
            return None
        if self.alone is None and self.keeps_data:
            rule = lstar.rule(str(experiment.lstar))
            self.alone = lstar.recalled(experiment.setup, rule, experiment.choice.name)
        return self.alone

    def _keep_more(self, state: RunState, examples: pd.DataFrame, alone: Alone | None) -> None:
        """Write predictions, the courses of clients alone, and the last model beside the best."""
        folder = self.folder
        assert folder is not None
        if len(examples):
            folder.write_table(folder.predictions, examples)
        if alone is not None:
            folder.write_table(folder.lstar_curves, alone.curves)
        if state.best_x is not None:
            last = self._down(state)
            module = self.experiment.setup.layout.write(
                copy.deepcopy(self.module), last.x, last.buffers
            )
            with folder.checksums.placing(folder.last) as beside:
                save_module(module, beside)


def round_(seconds: float) -> float:
    """Return seconds to the tenth of a millisecond."""
    return round(seconds, 4)


def _better(summary: Summary, value: float, best: float | None) -> bool:
    if best is None or math.isnan(value):
        return best is None
    sign = -1 if summary.better == "higher" else 1
    return math.isnan(best) or sign * value < sign * best


def _headline(values: Values) -> str:
    if np.isnan(values["loss"]).all():
        return "no client could be evaluated"
    if "accuracy" in values:
        shown = 100 * values["accuracy"]
        return f"accuracy {np.nanmean(shown):.1f} %, worst {np.nanmin(shown):.1f} %"
    return f"loss {np.nanmean(values['loss']):.3f}, worst {np.nanmax(values['loss']):.3f}"


@contextmanager
def interruptible() -> Iterator[Any]:
    """Turn a first Ctrl-C into a request to stop after the round; a second one stops at once."""
    asked = False

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
