"""Convolutions read large full batches block by block, by one worker or by all of them."""

import numpy as np
import pytest
import torch
from nets import conv
from torch import nn

import fedparity as fp
from fedparity.engines.answer import Down, train
from fedparity.engines.reference import lane as single
from fedparity.engines.reference.arranging import suits_channels_last
from fedparity.engines.reference.engine import LoopEngine
from fedparity.engines.reference.lane import OneClient, Workspace
from fedparity.learning.layout import Layout


@pytest.fixture
def setup(monkeypatch):
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 64 * 36)  # blocks of 64 examples of 36 numbers
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(3), [500, 20, 7])
    federation = fp.Federation.from_arrays(
        rng.standard_normal((len(owner), 1, 6, 6)),
        rng.integers(0, 2, len(owner)),
        owner,
        np.full(len(owner), "train"),
        outputs=2,
    )
    made = fp.Experiment(
        federation,
        conv,
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
    workspace = Workspace(setup.module, setup.layout, channels_last=True)
    found = train(OneClient(setup, workspace, down, 0), down, down.buffers, {}).deltas
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 1 << 22)
    whole = train(OneClient(setup, workspace, down, 0), down, down.buffers, {}).deltas
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


def test_convolutions_channels_last_give_what_they_gave():
    module = fp.models.lenet((1, 28, 28), 3).double()
    layout = Layout(module)
    workspace = Workspace(module, layout, channels_last=True)
    x = torch.randn(5, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(workspace.module(x), module(x), rtol=0, atol=1e-14)
    assert torch.equal(workspace.read(), layout.read(module)[0])
    conv = workspace.module.conv2.weight
    assert conv.is_contiguous(memory_format=torch.channels_last)


def deltas(setup, clients=(0, 1, 2), workers=2):
    down = down_of(setup)
    engine = LoopEngine(setup, workers=workers)
    found = engine.ask(down, np.asarray(clients), down.buffers, {}).deltas
    engine.close()
    return found


class Sum(nn.Module):
    """Two parameters whose gradients are one tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        self.out = conv((1, 6, 6), 2)

    def forward(self, x):
        return self.out(x) + (self.a + self.b)


class BatchStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False, track_running_stats=False)
        self.out = conv((1, 6, 6), 2)

    def forward(self, x):
        return self.out(self.norm(x))


@pytest.mark.parametrize("model", [Sum, BatchStatistics])
def test_blocks_change_no_model(setup, monkeypatch, model):
    made = fp.Experiment(
        setup.federation, model, solver=setup.solver, dtype="float64", lstar="none"
    ).setup
    found = deltas(made)
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 1 << 22)
    torch.testing.assert_close(found, deltas(made), rtol=0, atol=1e-14)


def test_other_models_keep_the_bits_of_the_whole_batch(setup, monkeypatch):
    made = fp.Experiment(
        setup.federation, "mlp(hidden=4)", solver=setup.solver, dtype="float64", lstar="none"
    ).setup
    found = deltas(made)
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 1 << 22)
    assert torch.equal(found, deltas(made))


def test_clients_of_a_single_block_are_not_worked_on_together(setup, monkeypatch):
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 1 << 22)
    engine = LoopEngine(setup, workers=2)
    assert not engine._together(np.arange(3))
    engine.close()


def test_a_single_number_is_a_parameter_too(setup):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.out = nn.Parameter(torch.tensor(1.0)), conv((1, 6, 6), 2)

        def forward(self, x):
            return self.scale * self.out(x)

    made = fp.Experiment(setup.federation, Scaled, solver=setup.solver, lstar="none").setup
    assert deltas(made)[:, 0].any()


def test_a_model_that_views_its_convolutions_is_left_as_it_is():
    class Tutorial(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4 * 26 * 26, 2)

        def forward(self, x):
            return self.out(self.conv(x).view(-1, 4 * 26 * 26))

    images = torch.zeros(2, 3, 28, 28)
    assert not suits_channels_last(Tutorial(), images)
    assert suits_channels_last(fp.models.lenet((3, 28, 28), 2), images)
    by_group = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
    assert not suits_channels_last(by_group, images)  # which is slower so
    assert not suits_channels_last(nn.Linear(3, 2), torch.zeros(2, 3))
