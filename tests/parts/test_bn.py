"""FedBN: normalisation layers stay on the clients."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scripted import after, bench, small_net
from torch import Tensor, nn

from fedparity.data import Federation
from fedparity.learning.solver import Solver
from fedparity.method.messages import Down
from fedparity.testing import Bench, unlike_clients

SOLVER = Solver(lr=0.2, steps=3)


class Normalised(nn.Module):
    """A network with a BatchNorm layer whose name says nothing."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], 4)
        self.between = nn.Sequential(nn.BatchNorm1d(4), nn.Tanh())
        self.last = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


def shifted(clients: int, n: int = 6) -> Federation:
    """Return clients of equal sizes whose inputs are shifted and scaled against each other."""
    rng = np.random.Generator(np.random.Philox(3))
    k = np.repeat(range(clients), 2 * n)
    x = (rng.standard_normal((len(k), 3)) + k[:, None]) * (1 + k[:, None])
    part = np.tile(["train"] * n + ["test"] * n, clients)
    return Federation.from_arrays(x, rng.integers(0, 2, len(k)), k, part, outputs=2)


def plain_torch(made: Bench, rounds: int) -> list[nn.Module]:
    """Return every client's model after FedBN written with modules and torch's optimiser."""
    federation, start = made.setup.federation, made.setup.module
    models = [copy.deepcopy(start) for _ in range(len(federation))]
    shared = [n for n, _ in start.named_parameters() if not n.startswith("between")]
    for _ in range(rounds):
        for k, model in enumerate(models):
            model.train()
            x, y = federation.train.client(k)
            optimiser = torch.optim.SGD(model.parameters(), lr=SOLVER.lr)
            for _ in range(3):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        for name in shared:
            mean = torch.stack([m.get_parameter(name).detach() for m in models]).mean(0)
            for model in models:
                with torch.no_grad():
                    model.get_parameter(name).copy_(mean)
    return models


def own_models(made: Bench) -> tuple[Tensor, Tensor]:
    """Return every client's parameters and buffers."""
    clients = np.arange(len(made.setup.federation))
    states = made.store.gather(clients)
    mask = made.setup.layout.normalisation()
    x = made.server.x.repeat(len(clients), 1)
    x[:, mask] = states["bn"]["own"]
    return x, states["buffers"]["b"]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("clients", [1, 3])
def test_it_agrees_with_plain_torch(clients, engine):
    made = bench(shifted(clients), "fedbn", solver=SOLVER, model=Normalised, engine=engine)
    wanted = plain_torch(made, rounds=3)
    after(made, rounds=3)
    found, buffers = own_models(made)
    for k, model in enumerate(wanted):
        x, b = made.setup.layout.read(model)
        torch.testing.assert_close(found[k], x)
        torch.testing.assert_close(buffers[k], b)


def test_normalisation_is_not_sent():
    made = bench(shifted(3), "fedbn", solver=SOLVER, model=Normalised)
    mask = made.setup.layout.normalisation()
    before = made.server.x
    replies = made.advance()
    assert int(mask.sum()) == 8  # four weights, four biases
    assert not bool(replies.deltas[:, mask].any())
    assert replies.buffers.numel() == 0
    assert torch.equal(made.server.x[mask], before[mask])
    assert not torch.equal(made.server.x[~mask], before[~mask])


def test_clients_keep_unlike_layers():
    made = bench(shifted(3), "fedbn", solver=SOLVER, model=Normalised)
    after(made, rounds=2)
    own = made.store.gather(np.arange(3))["bn"]["own"]
    assert not torch.allclose(own[0], own[1])


def test_an_absent_client_keeps_its_layers():
    made = bench(shifted(3), "fedbn", solver=SOLVER, model=Normalised)
    made.advance()
    before = made.store.gather(np.arange(3))["bn"]["own"]
    made.advance(answering=[0, 2])
    now = made.store.gather(np.arange(3))["bn"]["own"]
    assert torch.equal(now[1], before[1])
    assert not torch.equal(now[0], before[0])


def test_clients_are_evaluated_with_their_own_layers():
    made = bench(shifted(3), "fedbn", solver=SOLVER, model=Normalised)
    models = plain_torch(made, rounds=2)
    after(made, rounds=2)
    down = Down("evaluate", 2, 0.0, made.server.x, made.server.buffers)
    found = made.door.evaluate(down, "test")["personal"]
    for k, model in enumerate(models):
        x, y = made.setup.federation.test.client(k)
        with torch.no_grad():
            wanted = nn.functional.cross_entropy(model.eval()(x), y)
        assert found["loss"][k] == pytest.approx(float(wanted))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_without_normalisation_it_is_fedavg_to_the_bit(engine):
    solver = Solver(lr=0.1, steps=3, batch=4)
    bn, plain = (
        after(bench(unlike_clients(), text, solver=solver, model=small_net, engine=engine), 3)
        for text in ("fedbn", "fedavg")
    )
    assert torch.equal(bn, plain)
