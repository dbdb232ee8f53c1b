"""Where the examples of a client lie in memory."""

import numpy as np
import pytest
import torch

from fedparity.data.split import LINE, Split, room_for


def unaligned(rows, width):
    """Return numbers that begin 4 bytes after a line of memory."""
    room = torch.zeros(rows * width + 1)
    return room[1:].view(rows, width)


def test_rows_of_whole_lines_are_views_wherever_they_came_from():
    split = Split(unaligned(6, 16), torch.zeros(6, dtype=torch.int64), np.array([0, 2, 6]))
    assert split.x.data_ptr() % LINE == 0
    assert split.aligned(1)[0].data_ptr() == split.x[2:].data_ptr()


def test_other_rows_are_copied_to_the_beginning_of_a_line():
    x = torch.arange(18.0).view(6, 3)
    split = Split(x, torch.zeros(6, dtype=torch.int64), np.array([0, 2, 6]))
    inputs, _ = split.aligned(1)
    assert inputs.data_ptr() % LINE == 0
    assert torch.equal(inputs, x[2:])


@pytest.mark.parametrize("shape", [(0, 3), (5,), (7, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_room_for_examples_begins_a_line_and_holds_them(shape, dtype):
    room = room_for(shape, dtype)
    assert room.shape == shape
    assert room.dtype == dtype
    assert room.data_ptr() % LINE == 0 or not room.numel()
    values = torch.arange(room.numel(), dtype=dtype).view(shape)
    assert torch.equal(room.copy_(values), values)
