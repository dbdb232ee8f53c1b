"""The evaluations of a run: of all clients, and of the summaries that it watches."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedparity.engines.evaluation import Values
from fedparity.method.messages import Down
from fedparity.metrics import ClientFrame, Summary, summary_value
from fedparity.records.clients import clients_table
from fedparity.records.state import RunState
from fedparity.run.rounds import Rounds


class Evaluated(Rounds):
    """Rounds, and what they did to each client."""

    def _down(self, state: RunState) -> Down:
        x, shared = self.experiment.setup.algorithm.served(state.server)
        lr = self.experiment.solver.rate(max(1, state.round))  # where clients train before it
        return Down("evaluate", state.round, lr, x, state.server.buffers, shared)

    def _evaluate_split(self, down: Down, split: str, round: int) -> Values:
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
        values = {split: self._evaluate_split(down, split, state.round) for split in splits}
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
