"""The loss pass of a cohort: one over the examples of all its clients."""

import numpy as np
import pytest
import torch

import fedparity as fp
from fedparity.engines import engine as working
from fedparity.engines.stacked import pooled
from fedparity.errors import FedparityError
from fedparity.method.messages import Down
from fedparity.run.driver import Run

SIZES = (90, 201, 64, 3)


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
    monkeypatch.setattr(working, "cores", lambda: 2)
    monkeypatch.setattr(pooled, "COHORT_BLOCK", 1)  # as few examples as a block may have


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


@pytest.mark.parametrize("clients", [[0, 1, 2, 3], [1, 3]], ids=str)
def test_each_client_has_the_mean_of_its_own_losses(federation, clients):
    engine, down = engine_of(federation, "fedfv")
    found = engine.pooled(down, np.asarray(clients), down.buffers)
    expected = torch.stack([alone(engine, "train", client) for client in clients])
    torch.testing.assert_close(found["loss"], expected)
    engine.close()


def test_who_has_no_validation_example_is_measured_on_training_ones(federation):
    engine, down = engine_of(federation, "fedfv")
    reads, clients = frozenset({"validation_loss"}), np.asarray([0, 3])
    found = pooled.pooled_facts(engine.setup, reads, down, clients, engine.at_modules)
    expected = torch.stack([alone(engine, "validation", 0), alone(engine, "train", 3)])
    torch.testing.assert_close(found["validation_loss"], expected)
    engine.close()


@pytest.mark.parametrize("algorithm", ["fedfa", "term(inner=1.0)", "fedwavg"])
def test_what_is_of_examples_is_that_of_each_client_alone(federation, algorithm):
    engine, down = engine_of(federation, algorithm)
    clients = np.asarray([1, 3])
    found = engine.pooled(down, clients, down.buffers)
    names = engine.setup.algorithm.train_reads
    assert set(found) == names
    lane = engine._lane(engine.setup, down, clients)
    for name, alone in lane.measure(lane.spread(down.x), down.buffers, names).items():
        torch.testing.assert_close(found[name], alone)
    for row, client in enumerate(clients):
        inputs, target = engine.setup.federation.train.client(client)
        with torch.no_grad():
            right = (engine.setup.module(inputs).argmax(1) == target).to(down.x.dtype)
        if "accuracy" in found:
            torch.testing.assert_close(found["accuracy"][row], right.mean())
        if "right" in found:
            assert torch.equal(found["right"][row, : len(right)], right)
            assert not found["right"][row, len(right) :].any()
    engine.close()


def test_a_pass_that_fails_is_told(federation, monkeypatch):
    engine, down = engine_of(federation, "fedfv")

    def fail(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(pooled, "losses_block", fail)
    with pytest.raises((FedparityError, RuntimeError), match="no room"):
        engine.ask(down, np.arange(4), down.buffers, {})
    engine.close()
