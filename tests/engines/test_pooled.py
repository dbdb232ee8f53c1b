"""The loss pass of a cohort, before training or beside it."""

import numpy as np
import pytest
import torch

import fedparity as fp
from fedparity.engines.stacked import engine as vmapped
from fedparity.engines.stacked import pooled
from fedparity.engines.stacked.engine import VmapEngine
from fedparity.engines.stacked.lane import Stack
from fedparity.engines.stacked.pooled import Passes
from fedparity.errors import FedparityError
from fedparity.method.answer import Down
from fedparity.method.part import Part, stacked
from fedparity.run.driver import Run

SIZES = (90, 201, 64, 3)


class Louder(Part):
    """Looks at the loss before the first step."""

    name = "louder"
    reads = frozenset({"loss"})

    @stacked
    def factor(self, c):
        return c.loss

    def grad(self, g, x, c):
        return self.factor(c) * g


@pytest.fixture(scope="module")
def federation():
    draw = np.random.default_rng(0)
    total = sum(SIZES)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    split = np.where(draw.random(total) < 0.7, "train", "validation")
    split[owner == 3] = "train"  # one who has no validation example
    x = draw.normal(size=(total, 5)).astype(np.float32)
    return fp.Federation.from_arrays(x, draw.integers(0, 3, total), owner, split, outputs=3)


@pytest.fixture(autouse=True)
def two_workers_and_small_blocks(monkeypatch):
    monkeypatch.setattr(vmapped, "cores", lambda: 2)
    monkeypatch.setattr(pooled, "SHARE", 1)  # as few examples as a block may have


def engine_of(federation, algorithm, chunk=4):
    """Return an engine that has what the algorithm's clients need, and the first message."""
    run = Run(
        fp.Experiment(
            federation,
            "linear",
            algorithm=algorithm,
            solver=fp.Solver(lr=0.1, steps=3, batch=8),
            lstar="best_validation(rounds=1)" if algorithm == "eagle" else "none",
            engine="vmap",
            chunk=chunk,
        )
    )
    server = run.open().server
    each = {"eagle": {"weight": torch.ones(len(SIZES))}} if algorithm == "eagle" else {}
    return run.door.engine, Down("train", 1, 0.1, server.x, server.buffers, each=each)


def alone(engine, split, client):
    inputs, target = getattr(engine.setup.federation, split).client(client)
    with torch.no_grad():
        return engine.setup.task.losses(engine.setup.module(inputs), target).mean()


@pytest.mark.parametrize("chunk", [1, 4], ids=["before", "beside"])
@pytest.mark.parametrize("clients", [[0, 1, 2, 3], [1, 3]], ids=str)
def test_each_client_has_the_mean_of_its_own_losses(federation, chunk, clients):
    engine, down = engine_of(federation, "fedfv", chunk)
    found = engine.facts(down, np.asarray(clients), down.buffers)()
    expected = torch.stack([alone(engine, "train", client) for client in clients])
    torch.testing.assert_close(found["loss"], expected)
    engine.close()


def test_who_has_no_validation_example_is_measured_on_training_ones(federation):
    engine, down = engine_of(federation, "fedfv")
    reads, begin = frozenset({"validation_loss"}), engine._begin_at_modules
    found = Passes(engine.setup, reads, down, np.asarray([0, 3]), begin, beside=True)()
    expected = torch.stack([alone(engine, "validation", 0), alone(engine, "train", 3)])
    torch.testing.assert_close(found["validation_loss"], expected)
    engine.close()


@pytest.mark.parametrize(
    ("algorithm", "chunk", "order"),
    [
        ("fedfv", 4, ["step"] * 3 + ["measured"]),
        ("qffl", 4, ["step"] * 3 + ["measured"]),
        ("eagle", 4, ["step"] * 3 + ["measured"]),
        ([Louder()], 4, ["measured"] + ["step"] * 3),
        ("fedfv", 2, ["measured"] + ["step"] * 6),
        ("fedavg", 4, ["step"] * 3),
    ],
)
def test_a_pass_beside_training_is_waited_for_at_its_end(
    federation, algorithm, chunk, order, monkeypatch
):
    engine, down = engine_of(federation, algorithm, chunk)
    seen = []

    def called(self):
        if "measured" not in seen:
            seen.append("measured")
        return real_call(self)

    def descended(self, *args):
        seen.append("step")
        return real_descend(self, *args)

    real_call, real_descend = Passes.__call__, Stack.descend
    monkeypatch.setattr(Passes, "__call__", called)
    monkeypatch.setattr(Stack, "descend", descended)
    engine.ask(down, np.arange(4), down.buffers, {})
    assert seen == order
    engine.close()


@pytest.mark.parametrize("chunk", [1, 4], ids=["before", "beside"])
def test_a_pass_that_fails_is_told(federation, chunk, monkeypatch):
    engine, down = engine_of(federation, "fedfv", chunk)

    def fail(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(pooled, "losses_block", fail)
    with pytest.raises((FedparityError, RuntimeError), match="no room"):
        engine.ask(down, np.arange(4), down.buffers, {})
    engine.close()


def test_a_pass_is_called_off_where_training_fails(federation, monkeypatch):
    engine, down = engine_of(federation, "fedfv")
    called_off = []

    def fail(*_):
        raise RuntimeError("no steps")

    monkeypatch.setattr(Stack, "descend", fail)
    monkeypatch.setattr(Passes, "call_off", lambda self: called_off.append(self))
    with pytest.raises((FedparityError, RuntimeError), match="no steps"):
        engine.ask(down, np.arange(4), down.buffers, {})
    engine.close()
    assert len(called_off) == 1


@pytest.mark.parametrize("algorithm", ["fedfv", "eagle", "afl"])
def test_a_run_is_the_same_with_its_passes_before_training(federation, algorithm, monkeypatch):
    def trained():
        engine = {"solver": fp.Solver(lr=0.1, steps=3, batch=8), "engine": "vmap", "rounds": 4}
        lstar = "best_validation(rounds=1)" if algorithm == "eagle" else "none"
        result = fp.Experiment(
            federation, "linear", algorithm=algorithm, lstar=lstar, **engine
        ).run()
        return torch.cat([p.flatten() for p in result.model().parameters()])

    beside = trained()
    monkeypatch.setattr(VmapEngine, "_beside", lambda *_: False)
    torch.testing.assert_close(beside, trained())
