"""The door to the clients of a Flower federation."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from flwr.app import RecordDict
from torch import Tensor

from fedparity.clients.door import Door
from fedparity.engines.engine import Ids, Setup, join, rows_of
from fedparity.engines.evaluation import Values, base_of, evaluate_each
from fedparity.flower import codec
from fedparity.flower.agreement import digest
from fedparity.flower.checking import check_up, check_values, expected
from fedparity.flower.codec import ALONE, BASE, BadMessage, Schema, Stamp
from fedparity.flower.grouped import Cell, read, table
from fedparity.flower.link import Failure, exchange
from fedparity.flower.roster import Roster
from fedparity.method.messages import SERVER, Down, Own, Replies, Up
from fedparity.run.lstar import SPLITS

KINDS = {
    "probe": "query.probe",
    "losses": "query.losses",
    "train": "train",
    "evaluate": "evaluate",
}
"""Flower's types of our exchanges."""
GROUPS = "query.groups"
"""The type of an evaluation by groups."""


class Received:
    """The last round of which the server has each client's reply; 0 if of none."""

    def __init__(self, population: int) -> None:
        self.rounds = torch.zeros(population, dtype=torch.int64)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rounds, for a checkpoint."""
        return {"received": self.rounds}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the rounds of a checkpoint."""
        self.rounds = tensors["received"].clone()


class FlowerDoor(Door):
    """Clients at their sites, behind the one function ``ask``.

    Parameters
    ----------
    setup
        The server's view, over a stand-in for the data.
    roster
        Which node is which client.
    run
        The run's name.
    received
        Whose replies arrived.
    deadline
        Seconds that a reply may take.
    drop, min_replies
        As for any door.
    alone
        Whether sites train alone, and tell the metrics of the model that came of it.
    """

    def __init__(
        self,
        setup: Setup,
        roster: Roster,
        run: str,
        received: Received,
        deadline: float,
        drop: float = 0.0,
        min_replies: int = 1,
        alone: bool = False,
    ) -> None:
        super().__init__(setup.seed, drop, min_replies)
        self.setup, self.roster, self.run = setup, roster, run
        self.received, self.deadline = received, deadline
        self.unevaluated: dict[int, str] = {}
        """Clients without numbers in the last evaluation, and why; emptied when it is told."""
        self._schemas: dict[tuple[str, int], Schema] = {}
        self._evaluated: tuple[Down, dict[str, dict[str, Values]]] | None = None
        data = setup.federation.train
        metrics = list(evaluate_each(setup.task, setup.module, data.x[:2], data.y[:2]))
        metrics += [metric.name for metric in setup.metrics]
        own = setup.algorithm.personalises
        own = own or bool(setup.local_buffers and setup.layout.buffers)
        self._told = dict.fromkeys(["global", "personal"] if own else ["global"], metrics)
        self._told[ALONE] = [metric.name for metric in setup.metrics] if alone else []
        self._told[BASE] = list(base_of(setup.task, setup.federation, data))

    def ask(self, down: Down, cohort: Tensor) -> Replies:
        """Return the answers that arrive in time and are sound, by ascending id."""
        asked = np.sort(cohort.numpy())
        clients = asked[~self._dropped(down, asked)] if self.drop else asked
        self._record(down.round, asked, clients)
        ups = self._ask(down, asked, clients)
        self.attendance.answered = sorted(ups)
        if len(ups) < self.min_replies:
            return self._nobody(down)
        ids = np.asarray(sorted(ups), dtype=np.int64)
        found = [ups[int(client)] for client in ids]
        steps = torch.from_numpy(self.setup.lengths(ids))
        reports = join([up.reports for up in found], stack=True)
        if down.phase != "train":
            empty = down.x.new_zeros(len(ids), 0)
            return Replies(torch.from_numpy(ids), steps, reports, empty, empty)
        self.received.rounds[ids] = down.round
        deltas = torch.stack([up.deltas for up in found if up.deltas is not None])
        buffers = torch.stack([up.buffers for up in found if up.buffers is not None])
        return Replies(torch.from_numpy(ids), steps, reports, deltas, buffers)

    def _ask(self, down: Down, asked: Ids, clients: Ids) -> dict[int, Up]:
        """Return the sound answers by client, and note why others have none."""
        if not len(clients):
            return {}
        schema = self._schema(down)
        rows = np.searchsorted(asked, clients)
        own = {
            int(client): replace(down, each=rows_of(down.each, torch.tensor([row])))
            for client, row in zip(clients, rows, strict=True)
        }
        answers = self._exchange(own)
        ups: dict[int, Up] = {}
        for client, answer in answers.items():
            if isinstance(answer, Failure):
                self.attendance.failed[client] = answer.reason
                continue
            try:
                up = codec.read_up(answer, schema)
                check_up(up, self.setup, self._lstar(client))
            except BadMessage as error:
                self.attendance.failed[client] = f"its reply is rejected: {error}"
                continue
            ups[client] = up
        return ups

    def evaluate(self, down: Down, split: str) -> dict[str, Values]:
        """Return loss and metrics of every client; NaN for those who do not answer.

        All splits are asked for in one exchange, and kept until the parameters change.
        """
        if self._evaluated is None or not _same(self._evaluated[0], down):
            self._evaluated = down, self._evaluate(down)
        found = self._evaluated[1][split]
        return {model: values for model, values in found.items() if model not in (ALONE, BASE)}

    def base(self, split: str) -> Values:
        """Return what the sites told, in the last evaluation, of a guess without inputs."""
        return {} if self._evaluated is None else self._evaluated[1][split][BASE]

    def metrics_alone(self, split: str, own: Own | None) -> Values:
        """Return what the sites told, in the last evaluation, of their models alone."""
        return {} if self._evaluated is None else self._evaluated[1][split][ALONE]

    def _evaluate(self, down: Down) -> dict[str, dict[str, Values]]:
        population = range(len(self.setup.federation))
        found = {
            split: {
                model: {m: np.full(len(population), np.nan) for m in metrics}
                for model, metrics in self._told.items()
            }
            for split in SPLITS
        }
        self.unevaluated = {}
        for client, answer in self._exchange(dict.fromkeys(population, down)).items():
            if isinstance(answer, Failure):
                self.unevaluated[client] = answer.reason
                continue
            try:
                values = codec.numbers(answer)
                check_values(values, self._names(client), self.setup.task, self.setup.metrics)
            except BadMessage as error:
                self.unevaluated[client] = f"its reply is rejected: {error}"
                continue
            for name, value in values.items():
                model, split, metric = name.split("/")
                found[split][model][metric][client] = value
        return found

    def groups(self, down: Down) -> pd.DataFrame | None:
        """Return what the sites tell of their groups; one more exchange, where any has some."""
        hello = self.roster.hello
        having = [c for c, name in enumerate(self.setup.federation.names) if hello[name].groups]
        found: dict[str, list[Cell]] = {}
        asked = dict.fromkeys(having, down)
        for client, answer in (self._exchange(asked, GROUPS) if having else {}).items():
            name = self.setup.federation.names[client]
            if isinstance(answer, Failure):
                self.unevaluated[client] = answer.reason
                continue
            try:
                told = codec.words(answer).get("groups")
                found[name] = read(told, hello[name], self.setup.task, self.setup.metrics)
            except BadMessage as error:
                self.unevaluated[client] = f"its reply is rejected: {error}"
        return table(found, self.setup.federation.names) if found else None

    def _names(self, client: int) -> list[str]:
        """Return the numbers that a client's evaluation has."""
        there = [s for s in SPLITS if getattr(self.setup.federation, s).sizes[client]]
        return [
            f"{m}/{s}/{metric}"
            for s in there
            for m, metrics in self._told.items()
            for metric in metrics
        ]

    def _exchange(
        self, downs: dict[int, Down], kind: str | None = None
    ) -> dict[int, RecordDict | Failure]:
        """Send each client its message and return the answers by client, in ascending order."""
        names, nodes = self.setup.federation.names, self.roster.node
        online = self.roster.refresh(self.deadline)
        there = {c: nodes[names[c]] for c in downs if nodes.get(names[c]) in online}
        first = next(iter(downs.values()))
        kind, round = kind or KINDS[first.phase], first.round
        messages = {
            node: codec.write_down(downs[client], self._stamp(client))
            for client, node in there.items()
        }
        answers = exchange(self.roster.grid, messages, kind, round, self.deadline)
        found: dict[int, RecordDict | Failure] = {}
        for client in sorted(downs):
            absent = Failure(self.roster.why_absent(names[client]))
            found[client] = answers[there[client]] if client in there else absent
            silent = isinstance(found[client], Failure)
            (self.roster.silent.add if silent else self.roster.silent.discard)(names[client])
        return found

    def _stamp(self, client: int) -> Stamp:
        return Stamp(
            self.run,
            client,
            int(self.received.rounds[client]),
            self._lstar(client),
            self.setup.federation.names[client],
            digest(self.roster.settings),
            self.roster.common,
        )

    def _lstar(self, client: int) -> float:
        return math.nan if self.setup.lstar is None else float(self.setup.lstar[client])

    def _schema(self, down: Down) -> Schema:
        points = len(down.shared.get(SERVER, {}).get("factors", ()))
        kind = down.phase, points
        if kind not in self._schemas:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._schemas[kind] = expected(self.setup, down)
        return self._schemas[kind]


def _same(one: Down, other: Down) -> bool:
    return (
        one.round == other.round
        and torch.equal(one.x, other.x)
        and torch.equal(one.buffers, other.buffers)
    )
