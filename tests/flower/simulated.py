"""Run an app in Flower's own simulation, as ``flwr run`` at a simulating SuperLink does."""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import Context, RecordDict
from flwr.simulation.run_simulation import _run_simulation
from flwr.supercore.constant import NOOP_FEDERATION_ID
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.telemetry import EventType

from fedparity.deploy.app import read_app


def main(app: str, out: str) -> None:
    """Simulate an app with a node for each of its clients."""
    config = {**read_app(Path(app))["config"], "out": out}
    run = Run.create_empty(1)
    run.override_config, run.primary_task_id, run.federation_id = (
        {"out": out},
        1,
        NOOP_FEDERATION_ID,
    )
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    _run_simulation(
        server_app_attr="server_app:app",
        client_app_attr="client_app:app",
        num_supernodes=len(str(config["clients"]).split(",")),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        app_dir=app,
        run=run,
        server_app_context=Context(1, 1, {}, RecordDict(), config),
        is_app=True,
        exit_event=EventType.FLWR_SIMULATION_RUN_LEAVE,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
