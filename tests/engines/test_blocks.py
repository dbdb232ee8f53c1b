"""Large full batches are computed block by block, by one worker or by all of them."""

import numpy as np
import pytest
import torch

import fedparity as fp
from fedparity.core.client import Down, train
from fedparity.core.layout import Layout
from fedparity.engines import evaluation
from fedparity.engines.crew import Crew
from fedparity.engines.desk import Desk
from fedparity.engines.loop import LoopEngine
from fedparity.engines.single import OneClient


@pytest.fixture
def setup(monkeypatch):
    monkeypatch.setattr(evaluation, "BLOCK", 64 * 3)  # blocks of 64 examples of 3 numbers
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(3), [500, 20, 7])
    federation = fp.Federation.from_arrays(
        rng.standard_normal((len(owner), 3)),
        rng.integers(0, 2, len(owner)),
        owner,
        np.full(len(owner), "train"),
        outputs=2,
    )
    made = fp.Experiment(
        federation,
        "mlp(hidden=4)",
        solver=fp.Solver(lr=0.1, steps=3),
        dtype="float64",
        lstar="none",
    )
    return made.setup


def down_of(setup):
    x, buffers = setup.layout.read(setup.module)
    return Down("train", 1, 0.1, x, buffers)


def test_blocks_add_up_to_the_whole_batch(setup, monkeypatch):
    down = down_of(setup)
    desk = Desk(setup.module, setup.layout)
    found = train(OneClient(setup, desk, down, 0), down, down.buffers, {}).deltas
    monkeypatch.setattr(evaluation, "BLOCK", 1 << 22)
    whole = train(OneClient(setup, desk, down, 0), down, down.buffers, {}).deltas
    assert not torch.equal(found, whole)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-15)


def test_the_bits_do_not_depend_on_how_many_work_on_a_client(setup):
    down, clients = down_of(setup), np.arange(3)
    found = []
    for workers in (1, 2, 3):
        engine = LoopEngine(setup, workers=workers)
        found.append(engine.ask(down, clients, down.buffers, {}).deltas)
        engine.close()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_all_work_on_a_client_that_has_most_of_the_data(setup):
    engine = LoopEngine(setup, workers=2)
    assert engine._together(np.arange(3))
    assert not engine._together(np.array([1, 1]))
    engine.close()


def test_a_crew_returns_work_in_order_and_hands_out_each_desk_once():
    crew = Crew(["a", "b"])
    held = set()

    def one(piece, desk):
        assert desk not in held
        held.add(desk)
        held.discard(desk)
        return piece * piece

    assert crew.run(20, one) == [n * n for n in range(20)]
    crew.close()


def test_convolutions_channels_last_give_what_they_gave():
    module = fp.models.lenet((1, 28, 28), 3).double()
    layout = Layout(module)
    desk = Desk(module, layout)
    x = torch.randn(5, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(desk.module(x), module(x), rtol=0, atol=1e-14)
    assert torch.equal(desk.read(), layout.read(module)[0])
    conv = desk.module.conv2.weight
    assert conv.is_contiguous(memory_format=torch.channels_last)
