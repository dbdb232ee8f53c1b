"""What the node config and the run config say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity.errors import InputError, unknown
from fedparity.spec import call


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RunConfig:
    """What the one who starts the run says; the keys are written with hyphens.

    Parameters
    ----------
    clients
        The ids of all clients, in the order of the simulator's federation.
    out
        The run directory.
    resume
        Whether to go on with the run in ``out``.
    deadline
        Seconds that a reply may take.
    min_replies
        Replies without which a round changes nothing; None leaves it to the experiment.
    wait
        Seconds to wait until a node of every client is connected.
    first_deadline
        Seconds that the first exchange may take, in which each site computes its L*.
    """

    clients: tuple[str, ...]
    out: Path
    resume: bool = False
    deadline: float = Field(default=600.0, gt=0)
    min_replies: int | None = Field(default=None, ge=1)
    wait: float = Field(default=300.0, ge=0)
    first_deadline: float = Field(default=3600.0, gt=0)


KEYS = tuple(name.replace("_", "-") for name in RunConfig.__dataclass_fields__)


def run_config(config: Mapping[str, Any]) -> RunConfig:
    """Read the run config."""
    for key in config:
        if key not in KEYS:
            raise unknown("key of the run config", str(key), KEYS)
    for key in ("clients", "out"):
        if not str(config.get(key, "")).strip():
            raise InputError(
                f"the run config names no '{key}': add it under [tool.flwr.app.config]"
            )
    given = {key.replace("-", "_"): value for key, value in config.items()}
    names = clients_in(config)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"'clients' of the run config names '{twice}' twice")
    return call("run config", RunConfig, {**given, "clients": names})


def clients_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the clients that a run config names."""
    return tuple(name.strip() for name in str(config.get("clients", "")).split(",") if name.strip())


def client_of(context: Context) -> str:
    """Return which client a node is: by its own config, or by its place in a simulation."""
    if "client-id" in context.node_config:
        return str(context.node_config["client-id"])
    names, place = clients_in(context.run_config), context.node_config.get("partition-id")
    if isinstance(place, int) and place < len(names):
        return names[place]
    raise InputError('the node config names no client: start the node with client-id="..."')
