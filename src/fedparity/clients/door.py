"""The door to the clients: what a run needs of those behind it, and the clients in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fedparity.clients.reports import suspicious, wrong_reports
from fedparity.clients.store import ClientStore
from fedparity.data import Split
from fedparity.engines.engine import Engine, Ids, rows_of
from fedparity.engines.evaluation import (
    OUTPUT,
    Values,
    base_of,
    by_client,
    joined,
    of_clients,
)
from fedparity.errors import ClientError, DivergedError
from fedparity.learning.seeds import seeds_for
from fedparity.method.messages import Down, Named, Own, Replies, Up


@dataclass
class Attendance:
    """Who was asked in a round, who answered its last exchange, and why others did not."""

    round: int = 0
    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


class Door:
    """Asks clients, and remembers who answered.

    Parameters
    ----------
    seed
        The seed of the run, for the drawing of drop-outs.
    drop
        Probability that a client asked does not answer.
    min_replies
        With fewer replies than these an exchange counts as unanswered.
    """

    def __init__(self, seed: int, drop: float = 0.0, min_replies: int = 1) -> None:
        self.seed, self.drop, self.min_replies = seed, drop, min_replies
        self.attendance = Attendance()

    def ask(self, down: Down, cohort: Tensor) -> Replies:
        """Return the answers of those of the cohort who give one, by ascending id."""
        raise NotImplementedError

    def evaluate(self, down: Down, split: str) -> dict[str, Values]:
        """Return loss and metrics of every client, for the shared and any personal model."""
        raise NotImplementedError

    def base(self, split: str) -> Values:
        """Return what a guess without inputs gets of every client: its accuracy, or its loss."""
        raise NotImplementedError

    def metrics_alone(self, split: str, own: Own | None) -> Values:
        """Return the metrics of the models that clients trained alone, where these are known.

        ``own`` are the models, if they are here.
        """
        raise NotImplementedError

    def groups(self, down: Down) -> pd.DataFrame | None:
        """Return how groups inside clients fare, where no prediction of examples leaves them."""
        return None

    def close(self) -> None:
        """Give back what the door holds."""

    def _dropped(self, down: Down, clients: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        draws = seeds_for(self.seed, "dropout", down.round, clients) / float(2**64)
        dropped: np.ndarray[tuple[int], np.dtype[np.bool_]] = draws < self.drop
        return dropped

    def _record(self, round: int, asked: Ids, clients: Ids) -> None:
        if self.attendance.round != round:
            self.attendance = Attendance(round, asked.tolist())
        self.attendance.answered = clients.tolist()
        if len(clients) < len(asked):
            for client in np.setdiff1d(asked, clients).tolist():
                self.attendance.failed[client] = "dropped out"

    def _nobody(self, down: Down) -> Replies:
        """Return no replies: those who answered are too few for the exchange to count."""
        none = torch.zeros(0, dtype=torch.int64)
        empty = down.x.new_zeros(0, len(down.x))
        return Replies(none, none, {}, empty, empty[:, :0])


PERSONAL_FLOATS = 1 << 25
"""Numbers of personal parameters held at once while evaluating."""


class Simulation(Door):
    """Clients in this process, behind the one function ``ask``."""

    def __init__(
        self, engine: Engine, store: ClientStore, drop: float = 0.0, min_replies: int = 1
    ) -> None:
        super().__init__(engine.setup.seed, drop, min_replies)
        self.engine, self.store = engine, store
        self._tuned: tuple[Down, Own] | None = None

    def ask(self, down: Down, cohort: Tensor) -> Replies:
        """Return the answers of those of the cohort who do not drop out, by ascending id."""
        self._tuned = None
        asked = np.sort(cohort.numpy())
        clients = asked[~self._dropped(down, asked)] if self.drop else asked
        self._record(down.round, asked, clients)
        if len(clients) < self.min_replies:
            return self._nobody(down)
        if len(clients) < len(asked):
            present = torch.from_numpy(np.searchsorted(asked, clients))
            down = replace(down, each=rows_of(down.each, present))
        states = self.store.gather(clients)
        buffers = states["buffers"]["b"] if "buffers" in states else down.buffers
        up = self.engine.ask(down, clients, buffers, states)
        if up.reports:
            self._check_reports(down, up, clients)
        steps = torch.from_numpy(self.engine.setup.lengths(clients))
        ids = torch.from_numpy(clients)
        if up.deltas is None or up.buffers is None:
            return self._reported(down, up.reports, ids, steps)
        return self._received(down, up, ids, steps)

    def _reported(self, down: Down, reports: Named, ids: Tensor, steps: Tensor) -> Replies:
        """Leave out those whose reports are not finite, where nothing was trained."""
        finite = finite_reports(reports, len(ids))
        if not finite.all():
            rows = torch.from_numpy(finite)
            self._leave_out(down, ids, rows, "report")
            ids, steps, reports = ids[rows], steps[rows], rows_of(reports, rows)
            if len(ids) < self.min_replies:
                return self._nobody(down)
        empty = down.x.new_zeros(len(ids), 0)
        return Replies(ids, steps, reports, empty, empty)

    def _leave_out(self, down: Down, ids: Tensor, rows: Tensor, what: str) -> None:
        """Note who sent what is not finite; where nobody is left, the run has diverged."""
        names, gone = self.engine.setup.federation.names, ids[~rows].tolist()
        for client in gone:
            self.attendance.failed[client] = "what it sent is not finite"
        if len(gone) == len(ids):
            raise DivergedError(
                f"round {down.round}: every {what} is infinite or NaN (first: client "
                f"'{names[gone[0]]}'): lower the learning rate (now {down.lr:g}) or clip gradients"
            )
        told = f"the {what} of client '{names[gone[0]]}' is not finite and left out"
        warnings.warn(told, stacklevel=3)
        self.attendance.answered = ids[rows].tolist()

    def _check_reports(self, down: Down, up: Up, clients: Ids) -> None:
        """Tell of a report that its part says cannot be; what is not finite is left out later."""
        setup = self.engine.setup
        unknown = torch.full((len(clients),), torch.nan)
        lstar = unknown if setup.lstar is None else setup.lstar[clients]
        for row in np.flatnonzero(suspicious(setup, up.reports, lstar).numpy()).tolist():
            one, client = rows_of(up.reports, row), int(clients[row])
            for name, found in wrong_reports(setup, one, lstar[row]):
                if found != "not finite":
                    raise ClientError(
                        f"client '{setup.federation.names[client]}', round {down.round}, phase "
                        f"{down.phase}: its '{name}' is {found}"
                    )

    def _received(self, down: Down, up: Up, ids: Tensor, steps: Tensor) -> Replies:
        """Keep new client states and leave out updates that are not finite."""
        assert up.deltas is not None
        assert up.buffers is not None
        states = dict(up.states)
        sent = up.buffers
        if "buffers" in self.store.fresh:
            states["buffers"] = {"b": up.buffers}
            sent = up.buffers[:, :0]
        finite = finite_rows(up)
        if finite.all():
            self.store.scatter(ids.numpy(), states)
            return Replies(ids, steps, up.reports, up.deltas, sent)
        rows = torch.from_numpy(finite)
        self._leave_out(down, ids, rows, "update")
        if finite.sum() < self.min_replies:
            return self._nobody(down)
        self.store.scatter(ids[rows].numpy(), rows_of(states, rows))
        reports = rows_of(up.reports, rows)
        return Replies(ids[rows], steps[rows], reports, up.deltas[rows], sent[rows])

    def evaluate(self, down: Down, split: str) -> dict[str, Values]:
        """Return loss and metrics of every client, for the shared and any personal model."""
        setup = self.engine.setup
        data: Split = getattr(setup.federation, split)
        values = self.engine.evaluate_each(down.x, down.buffers, data, bool(setup.metrics))
        output = values.pop(OUTPUT, None)
        found = {"global": by_client(values, data)}
        if output is not None:
            found["global"] |= of_clients(setup.metrics, output, data)
        if self.personal:
            found["personal"] = self._evaluate_personal(down, split)
        return found

    @property
    def personal(self) -> bool:
        """Whether clients have models of their own."""
        return self.engine.setup.algorithm.personalises or "buffers" in self.store.fresh

    def each_own(self, data: Split, own: Own) -> dict[str, Tensor]:
        """Return loss, metrics and outputs of every example, each client's at what is its own."""
        return self.engine.evaluate_each_own(
            data, np.arange(len(self.engine.setup.federation)), own
        )

    def each_personal(self, down: Down, data: Split) -> dict[str, Tensor]:
        """Return loss, metrics and outputs of every example at the clients' own models."""
        pieces = [
            self.engine.evaluate_each_own(data, clients, own)
            for clients, own in self.own_models(down)
        ]
        return joined([piece for piece in pieces if piece])

    def base(self, split: str) -> Values:
        """Return what a guess without inputs gets of every client: its accuracy, or its loss."""
        setup = self.engine.setup
        return base_of(setup.task, setup.federation, getattr(setup.federation, split))

    def metrics_alone(self, split: str, own: Own | None) -> Values:
        """Return the metrics of the models that clients trained alone, where these are known."""
        setup = self.engine.setup
        if own is None or not setup.metrics:
            return {}
        data: Split = getattr(setup.federation, split)
        said = self.each_own(data, own).get(OUTPUT)
        return {} if said is None else of_clients(setup.metrics, said, data)

    def _evaluate_personal(self, down: Down, split: str) -> Values:
        found: Values = {}
        for clients, own in self.own_models(down):
            for key, values in self._evaluated_own(split, clients, own).items():
                everyone = np.full(len(self.engine.setup.federation), np.nan)
                found.setdefault(key, everyone)[clients] = values
        return found

    def own_models(self, down: Down) -> Iterator[tuple[Ids, Own]]:
        """Yield clients with what each would really use."""
        everyone = np.arange(len(self.engine.setup.federation))
        rows = max(1, PERSONAL_FLOATS // self.engine.setup.layout.size)
        for start in range(0, len(everyone), rows):
            clients = everyone[start : start + rows]
            yield clients, self._own(down, clients)

    def _evaluated_own(self, split: str, clients: Ids, own: Own) -> Values:
        """Return loss and metrics of clients with what they would really use."""
        metrics = self.engine.setup.metrics
        found = self.engine.evaluate_own(split, clients, own)
        if metrics:
            data: Split = getattr(self.engine.setup.federation, split)
            each = self.engine.evaluate_each_own(data, clients, own)
            if OUTPUT in each:
                found |= of_clients(metrics, each[OUTPUT], data, clients.tolist())
        return found

    def _own(self, down: Down, clients: Ids) -> Own:
        """Return what each client would really use.

        Where clients train for it, all of them if they are few, it is kept for the other splits.
        """
        if self._tuned is not None and self._tuned[0] is down:
            return self._tuned[1]
        states = self.store.gather(clients)
        buffers = down.buffers.expand(len(clients), -1)
        if "buffers" in states:
            buffers = states["buffers"]["b"]
        own = self.engine.personal(down, clients, buffers, states)
        setup = self.engine.setup
        if setup.algorithm.tuning and len(clients) == len(setup.federation):
            self._tuned = down, own
        return own

    def close(self) -> None:
        """Give back what the engine holds."""
        self.engine.close()


def finite_rows(up: Up) -> npt.NDArray[np.bool_]:
    """Tell which clients' updates and reports are all finite numbers."""
    assert up.deltas is not None
    # Sums are far cheaper than to look at every number, and numpy than torch on few of them.
    sums = up.deltas.sum(1) if up.sums is None else up.sums
    found: npt.NDArray[np.bool_] = np.isfinite(sums.detach().numpy())
    if not found.all():
        found = up.deltas.isfinite().all(1).numpy()
    return found & finite_reports(up.reports, len(found))


def finite_reports(reports: Named, clients: int) -> npt.NDArray[np.bool_]:
    """Tell of so many clients whose reports are all finite numbers."""
    found = np.ones(clients, dtype=np.bool_)
    for value in (v for report in reports.values() for v in report.values()):
        found &= np.isfinite(value.detach().numpy().reshape(clients, -1)).all(1)
    return found
