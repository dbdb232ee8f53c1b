"""The ServerApp: the same run as in the simulator, with another door to its clients."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping
from typing import Any

import pandas as pd
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fedparity.clients.door import Door
from fedparity.data.told import Common
from fedparity.engines.engine import Setup
from fedparity.engines.evaluation import Values
from fedparity.errors import InputError
from fedparity.flower import Settings
from fedparity.flower.agreement import agreed, blueprint, conditions_of, settings_of
from fedparity.flower.census import Hello, stand_in
from fedparity.flower.checking import check_lstar
from fedparity.flower.codec import BadMessage
from fedparity.flower.config import RunConfig, run_config
from fedparity.flower.door import FlowerDoor, Received
from fedparity.flower.roster import Roster
from fedparity.imports import NOTHING, Allowed
from fedparity.learning.task import Task
from fedparity.records.result import Result
from fedparity.records.rundir import RunDir
from fedparity.records.settings import recipe_of
from fedparity.records.state import Kept, RunState
from fedparity.reports.progress import Lines
from fedparity.run.driver import Run
from fedparity.run.experiment import Experiment
from fedparity.run.file import experiment as read_experiment
from fedparity.run.given import is_rule
from fedparity.run.lstar import ACCURACIES, COLUMNS, SPLITS
from fedparity.run.lstar_cache import read
from fedparity.run.lstar_rules import rule
from fedparity.run.unseen import refuse_on_flower
from fedparity.run.watching import Watcher

SITES = "sites.json"
"""In the run directory: the run's name and what its sites told of themselves."""


def server_app(experiment: Settings, task: Task | None, allowed: Allowed) -> ServerApp:
    """Return the ServerApp; see :func:`fedparity.flower.make_server_app`."""
    settings = settings_of(experiment)
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(settings, task, grid, run_config(context.run_config), allowed=allowed)

    return app


def serve(
    settings: Mapping[str, Any],
    task: Task | None,
    grid: Grid,
    config: RunConfig,
    watch: Watcher | None = None,
    allowed: Allowed = NOTHING,
) -> Result:
    """Run the experiment on the nodes of a grid, or go on with it.

    Parameters
    ----------
    settings
        The experiment's.
    task
        Stands in for a task that settings cannot name.
    grid
        Flower's way to the nodes.
    config
        What the run config says.
    watch
        Called with what happens; None prints lines.
    allowed
        The code that settings may name.
    """
    refuse_on_flower(conditions_of(settings))
    roster = Roster(grid, config.clients, agreed(settings, task, allowed))
    name = secrets.token_hex(16)
    file = config.out / SITES
    folder = RunDir(config.out)
    if config.resume:
        folder.require_free()
    else:
        folder.require_unused()
    if config.resume and (file.exists() or folder.has_checkpoint()):
        name, roster.hello, roster.common = read_sites(folder, config)
        enough = config.min_replies or int(settings.get("min_replies", 1))
        roster.gather(config.wait, config.deadline, lstar=False, enough=enough)
    else:
        everyone = len(config.clients)
        roster.gather(config.wait, config.first_deadline, lstar=True, enough=everyone)
    experiment = deployed(settings, task, roster, config, allowed)
    run = FlowerRun(experiment, config, roster, name, watch or Lines())
    return run.resume() if config.resume else run.start()


def deployed(
    settings: Mapping[str, Any],
    task: Task | None,
    roster: Roster,
    config: RunConfig,
    allowed: Allowed,
) -> Experiment:
    """Return the experiment over a stand-in for the data that the sites keep."""
    sites = [roster.hello[client] for client in config.clients]
    made = Common.read(roster.common).prepared if roster.common else None
    federation = stand_in(sites, recipe_of(settings) if settings.get("data") else None, made)
    changed: dict[str, Any] = {"engine": "flower", "chunk": None}
    if config.min_replies is not None:
        changed["min_replies"] = config.min_replies
    experiment = read_experiment(
        {**settings, **changed}, federation=federation, task=task, allowed=allowed
    )
    first = roster.hello[config.clients[0]]
    if blueprint(experiment.setup.module) != first.model:
        raise InputError("the sites build another model than the server: install the same app")
    return experiment


class FlowerRun(Run):
    """A run whose clients are the nodes of a Flower federation."""

    keeps_data = False

    def __init__(
        self, experiment: Experiment, config: RunConfig, roster: Roster, name: str, watch: Watcher
    ) -> None:
        super().__init__(experiment, config.out, watch)
        self.config, self.roster, self.name = config, roster, name

    def start(self) -> Result:
        """Run from the first round; nothing is written if an L* is refused."""
        if is_rule(self.experiment.lstar):
            self._told_lstar()
        return super().start()

    def open(self) -> RunState:
        """Write down who takes part, and prepare as for any run.

        Their L* is written before: who resumes relies on it where the sites are known.
        """
        assert self.folder is not None
        self._lstar()
        write_sites(self.folder, self.name, self.roster)
        return super().open()

    def _door(self, setup: Setup, x: Tensor, buffers: Tensor) -> tuple[Door, Kept]:
        experiment = self.experiment
        received = Received(len(experiment.federation))
        door = FlowerDoor(
            setup,
            self.roster,
            self.name,
            received,
            self.config.deadline,
            experiment.drop,
            experiment.min_replies,
            alone=is_rule(experiment.lstar),
        )
        return door, received

    def _lstar(self) -> pd.DataFrame | None:
        """Return the L* that each site computed for itself, or that the server was given."""
        assert self.folder is not None
        if self.experiment.lstar == "none":
            return None
        self.folder.verify_lstar()
        table = read(self.folder.lstar, self.experiment.setup)
        if table is None:
            given = self.experiment.given
            table = self._told_lstar() if given is None else given
            self._keep_lstar(table, 0.0)
        return table

    def _told_lstar(self) -> pd.DataFrame:
        told = [{"client": c, **self._lstar_of(c)} for c in self.config.clients]
        accurate = [name for name in ACCURACIES if any(name in row for row in told)]
        table = pd.DataFrame(told, columns=[*COLUMNS, *accurate])
        shares = dict.fromkeys((*SPLITS, *accurate), float)
        return table.astype({**shares, "rounds": "int64", "capped": bool})

    def _lstar_of(self, client: str) -> dict[str, float]:
        found, hello = self.roster.lstar.get(client, {}), self.roster.hello[client]
        most = rule(str(self.experiment.lstar)).rounds
        try:
            sizes = {split: getattr(hello, split) for split in SPLITS}
            check_lstar(found, sizes, self.experiment.setup.task, most)
        except BadMessage as error:
            raise InputError(f"the L* of client '{client}' is rejected: {error}") from error
        return found

    def _due(self, round: int) -> bool:
        """Checkpoint every round: clients keep the state of one round back, not of more."""
        return True

    def _table(
        self, values: dict[str, Values], base: dict[str, Values] | None = None
    ) -> pd.DataFrame:
        """Return one row a client; who could not be evaluated has no examples to summarise."""
        table = super()._table(values, base)
        for split in ("validation", "test"):
            table.loc[table[f"{split}_loss"].isna(), f"n_{split}"] = 0
        return table

    def _evaluate(self, state: RunState) -> str:
        note = super()._evaluate(state)
        self._note_absent(state)
        return note

    def _finish(self, state: RunState) -> Result:
        result = super()._finish(state)
        self._note_absent(state)
        return result

    def _note_absent(self, state: RunState) -> None:
        """Log, once an evaluation, who could not be evaluated and why."""
        door, folder = self.door, self.folder
        if isinstance(door, FlowerDoor) and folder is not None and door.unevaluated:
            names = self.experiment.federation.names
            failed = {names[client]: why for client, why in door.unevaluated.items()}
            folder.note(round=state.round, evaluation="incomplete", failed=failed)
            door.unevaluated = {}


def write_sites(folder: RunDir, name: str, roster: Roster) -> None:
    """Write the run's name and what its sites told, for a resume."""
    sites = [dataclasses.asdict(roster.hello[client]) for client in roster.clients]
    with folder.checksums.placing(folder.path / SITES) as beside:
        told = {"run": name, "sites": sites, "common": roster.common}
        beside.write_text(json.dumps(told, indent=1), encoding="utf-8")


def read_sites(folder: RunDir, config: RunConfig) -> tuple[str, dict[str, Hello], str]:
    """Return the run's name, what its sites told when it began, and how they prepare tables."""
    file = folder.path / SITES
    content = folder.read(file)
    try:
        found = json.loads(content)
        sites = [Hello.read(json.dumps(site)) for site in found["sites"]]
        name, common = str(found["run"]), str(found.get("common", ""))
    except (ValueError, KeyError, TypeError, BadMessage) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    clients = tuple(site.client for site in sites)
    if clients != config.clients:
        raise InputError(
            f"cannot resume {config.out}: its clients are {', '.join(clients)}, the run config "
            f"names {', '.join(config.clients)}"
        )
    return name, {site.client: site for site in sites}, common
