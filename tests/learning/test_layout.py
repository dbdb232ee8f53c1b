"""The model as a vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedparity.errors import InputError
from fedparity.learning.layout import Layout


class Odd(nn.Module):
    """A BatchNorm whose name does not say so, a counter and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.downsample = nn.Sequential(nn.Identity(), nn.BatchNorm1d(4))
        self.out = nn.Linear(4, 2)
        self.register_buffer("constant", torch.tensor([1.5, 2.5]))


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return Odd().double()


def test_reading_and_writing_give_the_module_back(module):
    layout = Layout(module)
    module.downsample[1].running_mean.fill_(3.0)
    module.downsample[1].num_batches_tracked.fill_(7)
    x, buffers = layout.read(module)
    other = layout.write(Odd().double(), x, buffers)
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
        assert other.state_dict()[name].dtype == tensor.dtype


def test_reading_copies(module):
    x, _ = Layout(module).read(module)
    before = module.out.bias.clone()
    x.zero_()
    assert torch.equal(module.out.bias, before)


def test_slices_are_contiguous_in_the_order_of_the_module(module):
    layout = Layout(module)
    assert [slot.name for slot in layout.slots] == [n for n, _ in module.named_parameters()]
    assert layout.slots[0].start == 0
    for one, next_one in zip(layout.slots, layout.slots[1:], strict=False):
        assert one.stop == next_one.start
    assert layout.size == sum(p.numel() for p in module.parameters())


def test_normalisation_is_found_by_type_not_by_name(module):
    layout = Layout(module)
    marked = [s.name for s in layout.slots if bool(layout.normalisation()[s.start : s.stop].all())]
    assert marked == ["downsample.1.weight", "downsample.1.bias"]


def test_counters_are_the_integer_buffers(module):
    layout = Layout(module)
    counted = [s.name for s in layout.buffers if bool(layout.counters()[s.start : s.stop].any())]
    assert counted == ["downsample.1.num_batches_tracked"]
    assert int(layout.counters().sum()) == 1


def test_views_are_the_tensors_of_the_vector_and_join_is_their_inverse(module):
    layout = Layout(module)
    x, _ = layout.read(module)
    named = layout.parameters(x)
    stack = torch.stack([x, 2 * x])
    for lead, y in (((), x), ((2,), stack)):
        views = layout.views(y)
        assert torch.equal(layout.join(views, torch.Size(lead)), y)
        for slot, view in zip(layout.slots, views, strict=True):
            assert view.shape == (*lead, *slot.shape)
            assert torch.equal(view[0] if lead else view, named[slot.name])


def test_a_write_to_a_view_is_a_write_to_the_vector(module):
    layout = Layout(module)
    x, _ = layout.read(module)
    for view in layout.views(x):
        view.zero_()
    assert not x.any()


def test_the_last_layers_by_count_and_by_name(module):
    layout = Layout(module)
    assert layout.layers == ["first", "downsample.1", "out"]
    assert layout.tail(1) == layout.tail(("out",)) == layout.size - 10
    assert layout.tail(0) == layout.size
    assert layout.tail(3) == 0


@pytest.mark.parametrize("wrong", [4, ("first",), ("ouch",)])
def test_layers_that_are_not_the_last_are_refused(module, wrong):
    with pytest.raises(InputError):
        Layout(module).tail(wrong)


def test_a_frozen_parameter_has_no_place(module):
    names = [slot.name for slot in Layout(module).slots]
    module.out.bias.requires_grad_(False)
    assert [slot.name for slot in Layout(module).slots] == names[:-1]


def test_a_model_without_parameters_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        Layout(nn.Flatten())


def test_tied_parameters_are_one_slice():
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert Layout(tied).size == 4 + 2 + 2
