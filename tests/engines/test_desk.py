"""A desk computes with a model of its own, which gives what the user's model gives."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedparity import models
from fedparity.core.layout import Layout
from fedparity.engines.desk import Desk, pool_first

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
    assert list(other.state_dict()) == list(module.state_dict())
    for made in (module, other):
        made(x).square().sum().backward()
    assert torch.equal(module(x), other(x))
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_pooling_stays_where_its_order_may_matter():
    watched = nn.ReLU()
    watched.register_forward_hook(lambda layer, args, out: None)
    twice = nn.ReLU()

    class Own(nn.Sequential):
        pass

    for module in (
        nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)),
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(watched, nn.MaxPool2d(2)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
        nn.Sequential(twice, nn.MaxPool2d(2), twice),
        Own(nn.ReLU(), nn.MaxPool2d(2)),
    ):
        before = list(module)
        assert list(pool_first(module)) == before


def test_a_desk_pools_before_relu_and_leaves_the_model_as_it_was():
    module = models.cnn((3, 32, 32), 10)
    before = [type(layer) for layer in module]
    desk = Desk(module, Layout(module))
    assert [type(layer) for layer in module] == before
    kinds = [type(layer) for layer in desk.module]
    assert kinds[:3] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
    assert list(desk.module.state_dict()) == list(module.state_dict())
