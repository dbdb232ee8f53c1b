"""An experiment in the simulator and over Flower's messages in one process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, Message, RecordDict
from safetensors.torch import load_file
from torch import Tensor

import fedparity as fp
from fedparity.flower import make_client_app
from fedparity.flower.agreement import settings_of
from fedparity.flower.config import run_config
from fedparity.flower.server_app import serve
from fedparity.flower.testing import Fault, LocalGrid
from fedparity.run.file import experiment
from fedparity.testing import unlike_clients

SETTINGS = {
    "model": "mlp(hidden=4)",
    "rounds": 3,
    "solver": {"lr": 0.1, "steps": 3, "batch": 4},
    "dtype": "float64",
    "seed": 1,
    "lstar": "best_validation(rounds=2)",
    "evaluate_every": 1,
}


@dataclass
class Deployment:
    """An experiment and the nodes it runs on; every run has a directory of its own."""

    folder: Path
    settings: dict[str, Any]
    federation: fp.Federation = field(default_factory=unlike_clients)
    task: fp.Task | None = None
    grid: LocalGrid = field(init=False)

    def __post_init__(self) -> None:
        self.settings = {**SETTINGS, **self.settings}
        app = make_client_app(self.settings, self.federation.only, task=self.task)
        self.grid = LocalGrid(app, self.federation.names, self.folder / "sites")

    def run(self, out: str = "run", fault: Fault | None = None, **config: object) -> fp.Result:
        """Run over Flower's messages."""
        if fault is not None:
            self.grid.fault = fault
        clients = ",".join(self.federation.names)
        known = {"clients": clients, "out": str(self.folder / out), "wait": 0.0}
        told = {key.replace("_", "-"): value for key, value in config.items()}
        return serve(
            settings_of(self.settings), self.task, self.grid, run_config({**known, **told})
        )

    def simulate(self) -> fp.Result:
        """Run in the simulator, with the loop engine."""
        settings = {**self.settings, "engine": "loop", "checkpoint_every": 1}
        made = experiment(settings, federation=self.federation, task=self.task)
        return made.run(out=self.folder / "simulated")

    def log(self, out: str = "run") -> list[dict[str, Any]]:
        """Return the lines of a run's log."""
        text = (self.folder / out / "log.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def checkpoint(self, out: str = "run") -> dict[str, Tensor]:
        """Return what the server keeps."""
        return load_file(self.folder / out / "checkpoint" / "state.safetensors")


def vector(result: fp.Result) -> Tensor:
    """Return the parameters of a result's model."""
    return torch.cat([p.detach().reshape(-1) for p in result.model().parameters()])


def spoiled(who: str, kind: str, record: str, name: str, value: object) -> Fault:
    """Return the fault of one client that sends another array or number than it should."""

    def fault(client: str, asked: Message, reply: Message) -> Message:
        if client == who and asked.metadata.message_type == kind:
            content: RecordDict = reply.content
            if value is None:
                del content[record][name]
            else:
                content[record][name] = value
        return reply

    return fault


def array(tensor: Tensor) -> Array:
    """Return a tensor as Flower carries it."""
    return Array(tensor.numpy())
