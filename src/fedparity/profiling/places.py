"""Which functions make up which phase of a round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fedparity.clients.door import Simulation
from fedparity.clients.store import ClientStore
from fedparity.engines import answer as client
from fedparity.engines.engine import Engine
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.lane import Lane, take_step
from fedparity.engines.stacked import engine as stacked
from fedparity.engines.stacked import pooled
from fedparity.learning.solver import Solver
from fedparity.method.algorithm import Algorithm
from fedparity.run.experiment import Experiment
from fedparity.run.rounds import Rounds
from fedparity.workers import Job

SAMPLING = "drawing the cohort"
PLANNING = "planning batches"
GATHERING = "gathering batches"
FORWARD = "forward pass"
BACKWARD = "backward pass"
STEP = "optimiser step"
FUSED = "backward pass with its step"
"""Where products are added to the parameters directly, the two cannot be told apart."""
UPDATE = "updates of the clients"
LOSSES = "loss pass that parts ask for"
COPYING = "copying the model to clients"
"""Of a chain of linear layers the first step makes the copies; views of it come with the plan."""
CLIENT = "client, the rest"
STATE = "state that clients keep"
EXCHANGE = "exchange, the rest"
SERVER = "averaging on the server"
OTHER = "round, the rest"

Place = tuple[Any, str, str | None]

FIXED: tuple[Place, ...] = (
    (Rounds, "round", OTHER),
    (Rounds, "_draw", SAMPLING),
    (Experiment, "sample", SAMPLING),
    (Algorithm, "round", SERVER),
    (Simulation, "ask", EXCHANGE),
    (ClientStore, "gather", STATE),
    (ClientStore, "scatter", STATE),
    (Solver, "batches", PLANNING),
    (Solver, "update", STEP),
    (client, "train", CLIENT),
    (client, "probe", CLIENT),
    (torch.autograd, "backward", BACKWARD),
    (torch.autograd, "grad", BACKWARD),
    (Job, "_wait", None),
    (stacked, "pooled_facts", LOSSES),
    (pooled, "losses_block", LOSSES),
    (pooled, "judged", LOSSES),
    (Chain, "_forward", FORWARD),
    (Chain, "gradient", BACKWARD),
    (Chain, "step", FUSED),
)
LANE = {
    "__init__": CLIENT,
    "batch": GATHERING,
    "gradient": FORWARD,
    "plain_step": FORWARD,
    "begin": COPYING,
    "update": UPDATE,
    "measure": LOSSES,
}
ENGINE = {"ask": EXCHANGE, "_works": PLANNING}


def places(algorithm: Algorithm) -> list[Place]:
    """Return the functions to watch for an algorithm; its parts' hooks by name."""
    found = [*FIXED, *_bound(take_step, STEP)]
    watched: tuple[tuple[type, dict[str, str]], ...] = ((Lane, LANE), (Engine, ENGINE))
    for base, names in watched:
        for kind in _kinds(base):
            found += [(kind, name, phase) for name, phase in names.items() if name in vars(kind)]
    for part in algorithm.parts:
        for hook in sorted(part.hooks):
            # Where a class has a hook from another, the clock sits on the one that defines it.
            owner: type = next(k for k in type(part).__mro__ if hook in vars(k))
            place = (owner, hook, f"{part.name}: {hook}")
            if not any((owner, hook) == known[:2] for known in found):
                found.append(place)
    return found


def _bound(function: Callable[..., Any], phase: str) -> Iterator[Place]:
    """Find a function in every module of ours that has imported it by name."""
    for home, module in list(sys.modules.items()):
        if home.startswith("fedparity."):
            yield from ((module, n, phase) for n, v in vars(module).items() if v is function)


def _kinds(base: type) -> Iterator[type]:
    below: list[type] = base.__subclasses__()
    for kind in below:
        yield kind
        yield from _kinds(kind)
