"""A real SuperLink and three SuperNodes, over TLS and with node authentication.

All tests share one federation. What the simulator computes must come out of it
to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

import pandas as pd
import psutil
from runs import assert_same
from wards import DATA, WARDS, write_wards

from fedparity.deploy.app import new_app
from fedparity.deploy.check import check_all
from fedparity.deploy.local import LocalFederation, run_id
from fedparity.deploy.processes import Child, end, until
from fedparity.errors import FedparityError
from fedparity.records.rundir import RunDir
from fedparity.run.file import experiment

pytestmark = pytest.mark.xdist_group("processes")  # one federation at a time

CLIENTS = ("client-1", "client-2", "client-3")
SETTINGS: dict[str, Any] = {
    "data": {"dataset": "eagle_synthetic(n=40)", "fractions": [0.6, 0.2, 0.2]},
    "model": "linear",
    "solver": {"lr": 0.1, "steps": 3, "batch": 8},
    "rounds": 2,
    "evaluate_every": 2,
    "lstar": "best_validation(rounds=5)",
}
PATIENCE = 120.0
DEADLINE = 12.0
POISONED = """
import numpy as np
from flwr.app import Array
from flwr.clientapp import ClientApp
from task import EXPERIMENT, load

from fedparity.flower import make_client_app

honest = make_client_app(EXPERIMENT, load)


class Poisoned(ClientApp):
    def __call__(self, message, context):
        reply = honest(message, context)
        numbers = message.content.metric_records.get("numbers", {})
        if context.node_config["client-id"] == "client-2" and numbers.get("round") == 1:
            vectors = reply.content.array_records.get("vectors", {})
            if "delta" in vectors:
                vectors["delta"] = Array(np.full_like(vectors["delta"].numpy(), np.nan))
        return reply


app = Poisoned()
"""


def node(client: str) -> str:
    return f"node-of-{client}"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("flower") / "federation"
    with LocalFederation(folder) as made:
        for client in CLIENTS:
            state = made.folder / node(client) / "state"
            made.add_node(node(client), {"client-id": client, "state-dir": str(state)})
        for client in CLIENTS:
            made.wait_node(node(client))
        yield made


def app(folder: Path, **settings: Any) -> Path:
    """Write an experiment and its app."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump({**SETTINGS, **settings}))
    new_app(folder / "app", file)
    return folder / "app"


def simulated(folder: Path) -> RunDir:
    """Run the experiment of :func:`app` in the simulator."""
    settings = yaml.safe_load((folder / "experiment.yaml").read_text())
    experiment({**settings, "engine": "loop"}).run(folder / "simulated")
    return RunDir(folder / "simulated")


def rounds(run: RunDir) -> list[Mapping[str, Any]]:
    """Return what the log tells of rounds, so far."""
    if not run.log.exists():
        return []
    lines = run.log.read_text().splitlines(keepends=True)
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    return [line for line in told if "answered" in line]


def wait_for_round(run: RunDir, number: int, follow: Child) -> None:
    """Wait for a round of a run that must not end before."""

    def look() -> bool | None:
        ended = follow.code is not None
        if len(rounds(run)) >= number:
            return True
        assert not ended, follow.text()
        return None

    until(f"round {number} (see {follow.log})", look, PATIENCE)


def test_a_serverapp_that_was_killed_is_resumed_to_the_same_result(federation, tmp_path):
    made = app(tmp_path, algorithm="scaffold+fedfv")
    deployed = RunDir(tmp_path / "deployed")
    follow = federation.start_run(made, {"out": str(deployed.path)})
    wait_for_round(deployed, 1, follow)
    kill_server_app(federation)
    end([follow])
    assert not deployed.model.exists()
    federation.run(made, {"out": str(deployed.path), "resume": True})
    assert_same(deployed, simulated(tmp_path))


def kill_server_app(federation: LocalFederation) -> None:
    """Kill the process that runs the rounds; SuperLink and SuperNodes go on."""
    assert federation.superlink is not None
    running = [p for p in federation.superlink.descendants() if p.status() != psutil.STATUS_ZOMBIE]
    (found,) = [p for p in running if "flwr-serverapp" in " ".join(p.cmdline())]
    found.kill()
    until("its end", lambda: found.status() == psutil.STATUS_ZOMBIE or None, PATIENCE)


@pytest.fixture(scope="module")
def eventful(federation, tmp_path_factory) -> list[Mapping[str, Any]]:
    """Return the log of a run: client-2 sends NaN in round 1, then the node of client-3 is killed
    and, before long, started again."""
    folder = tmp_path_factory.mktemp("eventful")
    made = app(folder, algorithm="fedavg", rounds=4, evaluate_every=4)
    (made / "client_app.py").write_text(POISONED)
    deployed = RunDir(folder / "deployed")
    follow = federation.start_run(made, {"out": str(deployed.path), "deadline": DEADLINE})
    wait_for_round(deployed, 1, follow)
    federation.kill_node(node("client-3"))
    federation.restart_node(node("client-3"), new_key=True)
    assert follow.ended(PATIENCE) == 0
    assert federation.status(run_id(follow)) == ("finished:completed", "N/A"), follow.text()
    return rounds(deployed)


def test_a_node_that_sends_nan_is_rejected_and_the_others_go_on(eventful):
    first = eventful[0]
    assert (first["asked"], first["answered"]) == (3, 2)
    assert list(first["failed"]) == ["client-2"]
    assert "not finite" in first["failed"]["client-2"]
    assert all("client-2" not in line["failed"] for line in eventful[1:])


def test_a_killed_node_is_missed_and_the_run_goes_on_to_its_end(eventful):
    missed = [line for line in eventful if "client-3" in line["failed"]]
    assert missed
    assert all(line["answered"] == 2 for line in missed)
    assert [line["round"] for line in eventful] == [1, 2, 3, 4]


def test_a_killed_node_that_comes_back_is_used_again(eventful):
    assert (eventful[-1]["answered"], eventful[-1]["failed"]) == (3, {})


def test_tables_give_the_run_of_the_simulator(federation, tmp_path):
    table = pd.read_csv(write_wards(tmp_path))
    table["ward"] = table["ward"].map(dict(zip(WARDS, CLIENTS, strict=True)))
    table.to_csv(tmp_path / "wards.csv", index=False)
    data = {"table": str(tmp_path / "wards.csv"), **DATA}
    made = app(tmp_path, data=data, metrics=["brier"], rounds=1, evaluate_every=1)
    deployed = RunDir(tmp_path / "deployed")
    federation.run(made, {"out": str(deployed.path)})
    known = simulated(tmp_path)
    assert_same(deployed, known)
    assert deployed.preparation.read_text() == known.preparation.read_text()
    assert pd.read_parquet(deployed.clients)["test_alone_brier"].notna().all()


def test_a_node_without_a_registered_key_is_not_let_in(federation):
    federation.add_node("with-another-key", {"client-id": "client-3"}, "unregistered")
    federation.add_node("without-a-key", {"client-id": "client-3"}, "none")
    for name in ("with-another-key", "without-a-key"):
        with pytest.raises(FedparityError, match="Failed to initialize the connection"):
            federation.wait_node(name)


def test_the_check_finds_the_superlink_and_all_ids_fine(federation, tmp_path):
    found = check_all(federation.keys, app(tmp_path), CLIENTS, federation.address, insecure=False)
    assert [one for one in found if not one.fine] == []
    assert found[-1].found == "answers, its certificate is right"
