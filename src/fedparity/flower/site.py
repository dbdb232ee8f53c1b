"""One client at its site: the data, the model, and the client side of an exchange."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedparity.clients.door import Simulation
from fedparity.clients.store import ClientStore
from fedparity.data import Federation, Split
from fedparity.engines import choice
from fedparity.engines.engine import rows_of
from fedparity.errors import InputError
from fedparity.flower import codec
from fedparity.flower.agreement import agreed, blueprint, conditions_of, digest
from fedparity.flower.census import Hello
from fedparity.flower.codec import ALONE, BASE, BadMessage, Stamp
from fedparity.flower.grouped import Cell, cells, text
from fedparity.flower.memory import Memory
from fedparity.imports import Allowed
from fedparity.learning.task import Task
from fedparity.method.messages import SERVER, Down, Own, Up
from fedparity.metrics import group_table
from fedparity.records.settings import task_of
from fedparity.reports.progress import Lines
from fedparity.run import lstar, lstar_cache, lstar_rules
from fedparity.run.file import algorithm_of, metrics_of, solver_of
from fedparity.run.given import is_rule
from fedparity.run.keeping import SPLITS, examples_table
from fedparity.run.preparing import prepare

ME = np.asarray([0])
MOST_POINTS = 64
"""Points of one exchange at which a site measures its loss."""


class Site:
    """A federation of one client, which computes what the simulator would for it.

    Parameters
    ----------
    settings
        The experiment's.
    client
        The client's id.
    federation
        That of the client alone.
    task
        Stands in for a task that settings cannot name.
    allowed
        The code that settings may name.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        client: str,
        federation: Federation,
        task: Task | None,
        allowed: Allowed,
    ) -> None:
        self.client, self.conditions = client, conditions_of(settings)
        self.agreed = agreed(settings, task, allowed)
        if len(federation) != 1:
            raise InputError(
                f"load('{client}') gives {len(federation)} clients: a site has one, take "
                "federation.only(client)"
            )
        task = task or task_of(settings, federation.kind, allowed)
        self.setup = prepare(
            federation,
            task,
            algorithm_of(settings, allowed),
            solver_of(settings),
            self.conditions,
            metrics_of(settings, allowed),
        )
        choice.check_model(self.setup, task)
        self.start = self.setup.layout.read(self.setup.module)

    def hello(self) -> Hello:
        """Return what the site tells of itself."""
        federation = self.setup.federation
        return Hello(
            client=self.client,
            train=len(federation.train),
            validation=len(federation.validation),
            test=len(federation.test),
            shape=federation.shape,
            fields=tuple((name, size, whole) for name, size, whole in federation.fields),
            target=tuple(federation.train.y.shape[1:]),
            whole=not federation.train.x.is_floating_point(),
            outputs=federation.outputs,
            kind=federation.kind,
            classes=federation.classes,
            columns=federation.columns,
            fingerprint=federation.fingerprint,
            model=blueprint(self.setup.module),
            parameters=self.setup.layout.size,
            python=platform.python_version(),
            settings=self.agreed,
            groups={kind: tuple(names) for kind, names in federation.groups.items()},
            counts=self._counts(),
        )

    def _counts(self) -> dict[str, dict[str, int]]:
        """Return its training examples by group, of the kinds that parts go by."""
        found = {}
        for kind in sorted(self.setup.algorithm.group_kinds):
            if kind not in self.setup.federation.groups:
                raise InputError(
                    f"'{self.setup.algorithm.text}' goes by groups of the kind '{kind}', which "
                    f"load('{self.client}') does not give"
                )
            counts = self.setup.federation.group_counts(kind).iloc[0]
            found[kind] = {str(name): int(count) for name, count in counts.items()}
        return found

    def alone(self, clients: Sequence[str], folder: Path) -> dict[str, float]:
        """Return the client's L* on each split that it has, and its rounds alone.

        It is computed once, and not at all where the server has been given it.
        """
        if self._rule is None:
            return {}
        setup = replace(self.setup, places=np.asarray([clients.index(self.client)]))
        rule = self._rule
        with closing(Lines()) as watch:
            tell = lstar.telling(watch, setup, rule)
            table = lstar_cache.cached(setup, rule, "loop", tell, folder)
        found = {str(name): float(table[name].iloc[0]) for name in table if name != "client"}
        return {name: value for name, value in found.items() if not np.isnan(value)}

    @property
    def _rule(self) -> lstar_rules.LstarRule | None:
        given = self.conditions.lstar
        return lstar_rules.rule(str(given)) if is_rule(given) else None

    def _own(self, place: int, folder: Path) -> Own | None:
        """Return the model behind the client's L*, if one is wanted and was kept."""
        if self._rule is None or not self.setup.metrics:
            return None
        setup = replace(self.setup, places=np.asarray([place]))
        alone = lstar_cache.recalled(setup, self._rule, "loop", folder)
        return None if alone is None else alone.own

    def answer(self, down: Down, stamp: Stamp, memory: Memory) -> Up:
        """Return the client's answer to a probe or a round of training, and remember it."""
        door, before = self._door(stamp, memory)
        replies = door.ask(down, torch.from_numpy(ME))
        reports = rows_of(replies.reports, 0)
        if down.phase != "train":
            return Up(reports)
        if before:
            after = codec.flat(rows_of(door.store.gather(ME), 0))
            memory.keep(stamp, down.round, before, after)
        return Up(reports, replies.deltas[0], replies.buffers[0])

    def evaluate(self, down: Down, stamp: Stamp, memory: Memory) -> dict[str, float]:
        """Return loss and metrics as ``model/split/metric``, on the splits that there are."""
        door, _ = self._door(stamp, memory)
        own = self._own(stamp.place, memory.file.parent)
        named = self.setup.metrics if self._rule is not None else ()
        missing = {metric.name: np.full(1, np.nan) for metric in named}  # where none was kept
        return {
            f"{model}/{split}/{metric}": float(value[0])
            for split in lstar.SPLITS
            if len(getattr(self.setup.federation, split))
            for model, values in {
                **door.evaluate(down, split),
                BASE: door.base(split),
                ALONE: {**missing, **door.metrics_alone(split, own)},
            }.items()
            for metric, value in values.items()
        }

    def groups(self, down: Down, stamp: Stamp, memory: Memory) -> str:
        """Return how the groups inside the client fare with the model that it would really use."""
        door, _ = self._door(stamp, memory)
        federation, task = self.setup.federation, self.setup.task
        told: list[Cell] = []
        for split in SPLITS:
            data: Split = getattr(federation, split)
            if not len(data) or not federation.groups:
                continue
            if door.personal:
                values = door.each_personal(down, data)
            else:
                values = door.engine.evaluate_each(down.x, down.buffers, data, outputs=True)
            rows = examples_table(federation, split, data, "global", values)
            for kind in federation.groups:
                found = group_table(
                    rows, kind, self.setup.metrics, accuracy=task.predicts == "classes"
                )
                told += cells(found, split, kind)
        return text(told)

    def _door(self, stamp: Stamp, memory: Memory) -> tuple[Simulation, codec.Flat]:
        """Return the client as it is after the last round that counts, and its state then."""
        x, buffers = self.start
        told = torch.tensor([stamp.lstar], dtype=torch.float64).to(x.dtype)
        known = None if np.isnan(stamp.lstar) else told
        setup = replace(self.setup, lstar=known, places=np.asarray([stamp.place]))
        store = ClientStore(
            setup.algorithm, setup.layout, x, buffers, 1, setup.local_buffers, setup.most_examples
        )
        before = memory.recall(stamp, codec.flat(store.fresh)) if store.fresh else {}
        store.scatter(ME, {p: _stacked(t) for p, t in codec.by_part(before).items()})
        return Simulation(choice.make(setup, "loop"), store), before


def _stacked(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value[None] for name, value in tensors.items()}


def check(down: Down, stamp: Stamp, site: Site) -> None:
    """Refuse a message for another client, under other settings or parts, or not finite."""
    if stamp.client != site.client:
        raise BadMessage(f"it is for client {codec.shown(stamp.client)}, this is '{site.client}'")
    if stamp.agreed != digest(site.agreed):
        raise BadMessage("its settings are not those that this site agreed on")
    names = {part.name for part in site.setup.algorithm.parts}
    _check_round(down)
    for name in (*down.shared, *down.each):
        if name not in names and name != SERVER:
            raise BadMessage(
                f"it speaks of part {codec.shown(name)}, which this site does not have"
            )
    if not bool(down.x.isfinite().all()):
        raise BadMessage("its parameters are not finite")


def _check_round(down: Down) -> None:
    """Refuse what the round itself says if it is not what rounds say."""
    told, mine = down.shared.get(SERVER, {}), down.each.get(SERVER, {})
    if mine.keys() - {"first_contact"} or told.keys() not in (set(), {"direction", "factors"}):
        raise BadMessage("it says what no round says")
    if told and (
        down.phase != "losses"
        or told["direction"].shape != down.x.shape
        or told["direction"].dtype != down.x.dtype
        or not bool(told["direction"].isfinite().all())
        or told["factors"].dim() != 1
        or len(told["factors"]) > MOST_POINTS
        or not bool(told["factors"].isfinite().all())
    ):
        raise BadMessage("the points at which it asks for losses are none")
