"""A workspace computes with a model of its own, which gives what the user's model gives."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedparity.engines.reference.arranging import pool_first
from fedparity.engines.reference.lane import Workspace
from fedparity.learning import models
from fedparity.learning.layout import Layout

POOLED = {
    "2x2": nn.MaxPool2d(2),
    "overlapping": nn.MaxPool2d(3, stride=2, padding=1),
    "ceil": nn.MaxPool2d(3, ceil_mode=True),
}


@pytest.mark.parametrize("pool", POOLED.values(), ids=POOLED)
@pytest.mark.parametrize("whole_numbers", [False, True])
def test_pooling_before_relu_gives_the_same_bits(pool, whole_numbers):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), pool, nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    )
    x = torch.randn(5, 2, 10, 10)
    module(x)
    if whole_numbers:  # several largest in a window, and windows of nothing but zeros
        x = x.round()
        for parameter in module.parameters():
            parameter.data = (3 * parameter.data).round()
    other = pool_first(copy.deepcopy(module))
    kinds = [type(layer) for layer in other]
    assert kinds.index(type(pool)) < kinds.index(nn.ReLU)
    for made in (module, other):
        made(x).square().sum().backward()
    assert torch.equal(module(x), other(x))
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


class Tapped(nn.Module):
    """Looks at what its layers give in between."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.net[0](x).mean() + self.net(x)


def watched(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda layer, args, out: None)
    return layer


def changed(layer: nn.Module) -> nn.Module:
    layer.forward = lambda x: x.abs()
    return layer


class Own(nn.Sequential):
    pass


TWICE = nn.ReLU()
LEFT = {
    "not ReLU": nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)),
    "before already": nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
    "watched": nn.Sequential(watched(nn.ReLU()), nn.MaxPool2d(2)),
    "watched pool": nn.Sequential(nn.ReLU(), watched(nn.MaxPool2d(2))),
    "changed": nn.Sequential(changed(nn.ReLU()), nn.MaxPool2d(2)),
    "changed sequence": changed(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))),
    "in place": nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    "indices": nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
    "gaps": nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, dilation=4, padding=1)),
    "twice": nn.Sequential(TWICE, nn.MaxPool2d(2), TWICE),
    "own class": Own(nn.ReLU(), nn.MaxPool2d(2)),
    "own forward": Tapped(),
}


@pytest.mark.parametrize("module", LEFT.values(), ids=LEFT)
def test_pooling_stays_where_its_order_may_matter(module):
    before = list(module.modules())
    assert list(pool_first(module).modules()) == before


def test_a_desk_pools_before_relu_and_leaves_the_model_as_it_was():
    module = models.cnn((3, 32, 32), 10)
    before = [type(layer) for layer in module]
    workspace = Workspace(module, Layout(module))
    assert [type(layer) for layer in module] == before
    kinds = [type(layer) for layer in workspace.module]
    assert kinds[:3] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
