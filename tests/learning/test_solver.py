"""The local training loop's settings: batch plan and step rule."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedparity.errors import InputError
from fedparity.learning.seeds import seeds_for
from fedparity.learning.solver import Solver

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def plan(solver: Solver, sizes: list[int], clients: list[int] | None = None):
    n = np.asarray(sizes, dtype=np.int64)
    keys = seeds_for(0, "batches", 1, np.arange(len(n)) if clients is None else clients)
    made = solver.batches(keys, n)
    assert made is not None
    return made


def taken(made, row: int, steps: int) -> list[list[int]]:
    return [made.index[row, step][made.mask[row, step]].tolist() for step in range(steps)]


@given(sizes=SIZES, batch=st.integers(1, 50), epochs=st.integers(1, 3))
def test_every_epoch_goes_once_over_the_examples(sizes, batch, epochs):
    solver = Solver(epochs=epochs, batch=batch)
    made, lengths = plan(solver, sizes), solver.lengths(np.asarray(sizes))
    for row, n in enumerate(sizes):
        batches = taken(made, row, lengths[row])
        per_epoch = len(batches) // epochs
        for epoch in range(epochs):
            own = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(chain.from_iterable(own)) == list(range(n))
            assert [len(b) for b in own[:-1]] == [batch] * (per_epoch - 1)


@given(sizes=SIZES, batch=st.integers(1, 50), steps=st.integers(1, 12))
def test_no_step_of_a_client_is_empty(sizes, batch, steps):
    made = plan(Solver(steps=steps, batch=batch), sizes)
    assert made.mask.any(-1).all()
    assert (made.index < np.asarray(sizes)[:, None, None]).all()


@given(sizes=SIZES, batch=st.integers(1, 20), steps=st.integers(1, 6))
def test_a_clients_batches_do_not_depend_on_its_group(sizes, batch, steps):
    solver = Solver(steps=steps, batch=batch)
    together = plan(solver, sizes)
    for row, n in enumerate(sizes):
        alone = plan(solver, [n], [row])
        assert taken(together, row, steps) == taken(alone, 0, steps)


def test_a_finished_client_has_no_examples_left():
    made = plan(Solver(epochs=1, batch=5), [5, 12])
    assert made.mask.shape == (2, 3, 5)
    assert made.mask.sum(-1).tolist() == [[5, 0, 0], [5, 5, 2]]


def test_a_client_smaller_than_a_batch_trains_on_all_it_has():
    made = plan(Solver(steps=2, batch=100), [3])
    assert [sorted(batch) for batch in taken(made, 0, 2)] == [[0, 1, 2], [0, 1, 2]]


def test_steps_go_on_into_the_next_epoch():
    batches = taken(plan(Solver(steps=4, batch=4), [6]), 0, 4)
    assert [len(batch) for batch in batches] == [4, 2, 4, 2]
    assert batches[0] + batches[1] != batches[2] + batches[3]


def test_without_a_batch_there_is_no_plan():
    assert Solver(steps=3).batches(seeds_for(0, "b", 1, [0]), np.asarray([5])) is None


@pytest.mark.parametrize(
    ("solver", "lengths"),
    [
        (Solver(), [1, 1, 1]),
        (Solver(epochs=3), [3, 3, 3]),
        (Solver(steps=7, batch=2), [7, 7, 7]),
        (Solver(epochs=2, batch=10), [2, 2, 6]),  # 2 * ceil(n / 10)
    ],
)
def test_lengths_of_clients_of_1_10_and_21_examples(solver, lengths):
    assert solver.lengths(np.asarray([1, 10, 21])).tolist() == lengths


def test_the_learning_rate_decays_by_the_round():
    solver = Solver(lr=0.4, decay=0.5)
    assert [solver.rate(t) for t in (1, 2, 3)] == [0.4, 0.2, 0.1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.2},
        {"momentum": 0.5, "weight_decay": 0.1},
        {"optimizer": "adam"},
        {"optimizer": "adam", "weight_decay": 0.1},
    ],
)
def test_the_step_rule_is_that_of_torch(settings):
    start = torch.linspace(-1, 1, 5, dtype=torch.float64)
    parameter = torch.nn.Parameter(start.clone())
    known = {k: v for k, v in settings.items() if k != "optimizer"}
    rule = torch.optim.Adam if "optimizer" in settings else torch.optim.SGD
    theirs = rule([parameter], lr=0.1, **known)
    solver = Solver(lr=0.1, steps=4, **settings)
    y, slots = start, solver.slots(start)
    for step in range(4):
        parameter.grad = parameter.detach() ** 3 + step
        y, slots = solver.update(y, y**3 + step, slots, 0.1, step)
        theirs.step()
        torch.testing.assert_close(y, parameter.detach(), rtol=1e-12, atol=1e-14)


def test_clipping_shortens_long_gradients_and_leaves_short_ones():
    solver = Solver(lr=1.0, clip=2.0)
    zero = torch.zeros(2, dtype=torch.float64)
    long, short = torch.tensor([3.0, 4.0]).double(), torch.tensor([0.3, 0.4]).double()
    # |(3, 4)| = 5, cut to 2: (1.2, 1.6)
    torch.testing.assert_close(solver.update(zero, long, (), 1.0, 0)[0], -long * 0.4)
    torch.testing.assert_close(solver.update(zero, short, (), 1.0, 0)[0], -short)
    assert not solver.update(zero, zero, (), 1.0, 0)[0].isnan().any()


def test_the_step_rule_works_row_by_row_on_a_stack():
    solver = Solver(lr=0.1, clip=1.0, momentum=0.5)
    y, g = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stacked, _ = solver.update(y, g, solver.slots(y), 0.1, 0)
    rows = [solver.update(a, b, solver.slots(a), 0.1, 0)[0] for a, b in zip(y, g, strict=True)]
    assert torch.equal(stacked, torch.stack(rows))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 1, "epochs": 1},
        {"optimizer": "adam", "momentum": 0.5},
        {"lr": 0.0},
        {"lr": float("inf")},
        {"lr": float("nan")},
        {"batch": 0},
        {"steps": 0},
        {"momentum": 1.0},
        {"decay": 1.5},
        {"learning_rate": 0.1},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        Solver(**wrong)
