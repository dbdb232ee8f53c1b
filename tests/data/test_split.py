"""Where the examples of a client lie in memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedparity.data import Federation
from fedparity.data.split import LINE, Split, room_for
from fedparity.errors import InputError


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


def table(clients, seed=0):
    """Return a federation of the named clients, 10 examples each; the input names the example."""
    owner = np.repeat(clients, 10)
    x = [[place] for _ in clients for place in range(10)]
    return Federation.from_arrays(x, [0, 1] * (len(owner) // 2), owner, seed=seed)


def test_a_site_alone_deals_as_the_simulator_does():
    together = table(["north", "south", "west"])
    for name in together.names:
        own, alone = together.only(name), table([name])
        assert own.train.x.tolist() == alone.train.x.tolist()
        assert own.test.x.tolist() == alone.test.x.tolist()


def test_two_clients_and_two_seeds_are_dealt_unlike():
    together = table([f"client-{k}" for k in range(8)])
    assert len({tuple(together.test.client(k)[0].ravel().tolist()) for k in range(8)}) > 3
    assert together.test.x.tolist() != table(together.names, seed=1).test.x.tolist()


def test_clients_are_in_natural_order():
    assert table(["client-10", "client-2", "b1", "B"]).names == ("B", "b1", "client-2", "client-10")


def groups():
    return Federation.from_arrays(
        np.arange(20.0)[:, None],
        [0, 1] * 10,
        ["b", "a"] * 10,
        groups={"sex": ["m", "f", "m", None] * 5, "age_band": [5, 10, 5, 10] * 5},
    )


def test_groups_stay_beside_their_examples():
    made = groups()
    assert made.groups == {"sex": ("f", "m", "missing"), "age_band": ("5", "10")}
    assert made.shape == (1,)
    for split in ("train", "validation", "test"):
        told, rows = made.group_table(split), getattr(made, split)
        place = rows.x.ravel().long().numpy()
        assert told["client"].tolist() == np.array(["b", "a"] * 10)[place].tolist()
        assert told["sex"].tolist() == np.array(["m", "f", "m", "missing"] * 5)[place].tolist()
        assert told["age_band"].tolist() == np.array(["5", "10"] * 10)[place].tolist()


def test_groups_go_with_a_client_and_count_for_the_fingerprint():
    made = groups()
    alone = made.only("b").to(torch.float32)
    assert alone.group_table("train")["sex"].tolist() == ["m"] * 8
    assert replace(made, train=replace(made.train, groups={})).fingerprint != made.fingerprint


def test_groups_that_are_no_groups_are_refused():
    with pytest.raises(InputError, match="'age' has 1001 different values: make bands"):
        Federation.from_arrays(
            np.zeros((1001, 1)), np.zeros(1001), ["a"] * 1001, groups={"age": np.arange(1001)}
        )
    with pytest.raises(InputError, match="unknown split 'tset': did you mean 'test'"):
        groups().group_table("tset")
