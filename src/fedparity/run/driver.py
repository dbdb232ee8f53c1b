"""The driver: round after round, with evaluation, checkpoints and early stop."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.data.doctor import short
from fedparity.engines.engine import intraop
from fedparity.engines.evaluation import Values
from fedparity.errors import DivergedError, FedparityError, InputError
from fedparity.method.messages import Down
from fedparity.records.divergence import divergence
from fedparity.records.model import save_module, save_tensors
from fedparity.records.releases import Releases
from fedparity.records.result import Result
from fedparity.records.state import RunState
from fedparity.run import keeping, lstar_cache, lstar_rules
from fedparity.run.alone import Alone
from fedparity.run.evaluating import Evaluated
from fedparity.run.rounds import round_
from fedparity.run.unseen import unseen_table
from fedparity.run.watching import interruptible

PAUSE = 10.0
"""Seconds between checkpoints when the experiment does not name rounds."""
KEPT = ("kept_round", "told", "privacy", "stopped", "diverged", "predictions", "personal")
"""What is known of a run at its end, for its record."""
TOLD: set[str] = set()
"""Fingerprints of the data about which this process has said what is odd."""
MOST_EMPTY = 20
"""Empty rounds in a row after which a run gives up."""


class Run(Evaluated):
    """One run of an experiment, in memory or in a directory."""

    _last_saved = 0.0
    """When there was a checkpoint, by a clock that only moves forward."""
    _ended: str | None = None
    """Why no further round was possible."""

    def start(self) -> Result:
        """Run from the first round."""
        if self.folder is not None:
            self.folder.require_unused()
        with self._held(), intraop(1), self._shown(resumed=False):
            if self.folder is not None:
                self.folder.create(self.experiment.describe())
            return self._go(resumed=False)

    def resume(self) -> Result:
        """Go on from the last checkpoint, or from the start if the run never wrote one."""
        assert self.folder is not None
        self.folder.settings()  # refuses a directory that holds no run
        with self._held(), intraop(1), self._shown(resumed=True):
            if not self.folder.has_checkpoint():
                self.folder.check(self.experiment.describe())
            return self._go(resumed=True)

    def _held(self) -> AbstractContextManager[None]:
        """Hold the run directory, if there is one: nobody else writes to it meanwhile."""
        if self.folder is None:
            return nullcontext()
        return self.folder.held(self.experiment.setup.algorithm.text)

    @contextmanager
    def _shown(self, resumed: bool) -> Iterator[None]:
        """Show what is odd about the data and how a run goes, where nobody else watches it."""
        if not self.unwatched:
            yield
            return
        from fedparity.reports.progress import watcher

        with closing(watcher()) as watch:
            self.watch = watch
            federation = self.experiment.federation
            if not resumed and federation.fingerprint not in TOLD:
                TOLD.add(federation.fingerprint)
                for line in short(federation.check()):
                    watch.tell(f"data: {line}")
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
            self._open_releases(state)
            where = None if self.folder is None else self.folder.path
            with self.telling.open(self.experiment.describe(), where):
                if not state.round:
                    self.telling.round(0, {}, {})
                self._rounds(state)
            return self._finish(state)
        finally:
            self.close()

    def _open_releases(self, state: RunState) -> None:
        """Keep account of the rounds of a private run; a budget forbids to begin one twice."""
        promised = self._guarantees(state).values()
        if self.folder is None or all(each.epsilon is None for each in promised):
            return
        self.releases = Releases(self.folder, state.round)
        if self.releases.begun > state.round and any(each.budget for each in promised):
            raise InputError(
                f"cannot resume {self.folder.path}: it was ended within round "
                f"{self.releases.begun}, which would leave clients a second time, and its privacy "
                "budget does not hold then: begin a new run"
            )

    def _keep_preparation(self) -> None:
        """Write down how tables became inputs; of a transformer of the user's how to make it."""
        made = self.experiment.federation.preparation
        if self.folder is not None and made is not None:
            self.folder.write_text(self.folder.preparation, made.text())

    def _rounds(self, state: RunState) -> None:
        experiment = self.experiment
        text = experiment.setup.algorithm.text
        self.watch.stage(f"{text} ({experiment.choice.name})", experiment.rounds)
        self.watch.advance(state.round)
        self._last_saved = time.monotonic()  # or by another run, which this one goes on from
        with interruptible() as interrupted:
            while state.round < experiment.rounds and not self._stopped(state):
                began = time.perf_counter()
                if self.releases is not None:
                    self.releases.begin(state.round + 1)
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
        if self.releases is not None:
            return True  # what is lost is released again
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
        unseen = unseen_table(experiment, down.x, down.buffers)
        examples, cut = keeping.predictions(experiment, self.door, down, alone)
        if cut:
            settings["record"]["predictions"] = cut
        owned, left = keeping.personal_models(experiment, self.door, down)
        if left:
            settings["record"]["personal"] = left
        groups = self.door.groups(down)
        settings["record"]["diverged"] = diverged = self._diverged(down, clients)
        module = experiment.setup.layout.write(self.module, down.x, down.buffers).eval()
        path = None
        if self.folder is not None:
            path = self.folder.path
            self.folder.write_table(self.folder.history, self.history.table())
            with self.folder.checksums.placing(self.folder.model) as beside:
                save_module(module, beside)
            self._keep_more(state, examples, alone, groups)
            if unseen is not None:
                self.folder.write_table(self.folder.unseen, unseen)
            if owned:
                with self.folder.checksums.placing(self.folder.personal) as beside:
                    save_tensors(owned, beside)
            found = {k: v for k, v in settings["record"].items() if k in KEPT}
            self.folder.update(experiment.rounds, **found)
            self.folder.write_table(self.folder.clients, clients)  # the last: it tells of the end
            self.folder.finished()
        result = Result(clients, self.history.table(), settings, state.round, module, path)
        curves = None if alone is None else alone.curves
        made = experiment.federation.preparation
        result.keep(examples, curves, experiment.setup.task, made, owned, groups)
        result.unseen = unseen
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
            rule = lstar_rules.rule(str(experiment.lstar))
            self.alone = lstar_cache.recalled(experiment.setup, rule, experiment.choice.name)
        return self.alone

    def _keep_more(
        self,
        state: RunState,
        examples: pd.DataFrame,
        alone: Alone | None,
        groups: pd.DataFrame | None,
    ) -> None:
        """Write what is kept of examples, groups and training alone, and the last model."""
        folder = self.folder
        assert folder is not None
        if len(examples):
            folder.write_table(folder.predictions, examples)
        if groups is not None:
            folder.write_table(folder.groups, groups)
        if alone is not None:
            folder.write_table(folder.lstar_curves, alone.curves)
        if state.best_x is not None:
            last = self._down(state)
            module = self.experiment.setup.layout.write(
                copy.deepcopy(self.module), last.x, last.buffers
            )
            with folder.checksums.placing(folder.last) as beside:
                save_module(module, beside)
