"""What is laid out for the lanes of a cohort: batches group by group, vectors with their views."""

import numpy as np
import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.engines import engine as working
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.lane import Rule
from fedparity.engines.stacked import engine as vmapped
from fedparity.engines.stacked.batches import Batches, Group, Slotted
from fedparity.engines.stacked.engine import VmapEngine
from fedparity.engines.stacked.lane import Stack, Work
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import seeds_for
from fedparity.method.messages import Down
from fedparity.testing import unlike_clients

SOLVERS = [fp.Solver(epochs=2, batch=4), fp.Solver(steps=3, batch=100), fp.Solver(steps=2, batch=1)]


def batches(data, clients, solver, groups):
    plan = solver.batches(seeds_for(0, "batches", 1, clients), data.sizes[clients])
    return plan, list(Batches.by_group(data, clients, plan, groups))


def groups_of(sizes, solver, cut):
    halves, lengths = (slice(0, cut), slice(cut, len(sizes))), solver.lengths(sizes)
    return [Group(w, int(lengths[w].max()), solver.width(sizes[w])) for w in halves]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"batch {s.batch}")
def test_a_group_reads_the_examples_its_clients_were_given(solver):
    data, clients = unlike_clients((5, 9, 2, 7)).train, np.asarray([3, 0, 2])
    groups = groups_of(data.sizes[clients], solver, 2)
    plan, made = batches(data, clients, solver, groups)
    for group, mine in zip(groups, made, strict=True):
        room = mine.room()
        for step in range(group.steps):
            inputs, target, share = mine.at(step, room)
            assert inputs.shape[:2] == target.shape[:2] == share.shape
            for place, row in enumerate(range(group.who.start, group.who.stop)):
                inside = plan.mask[row, step, : group.width]
                rows = plan.index[row, step, : group.width][inside]
                x, y = data.client(int(clients[row]))
                kept = torch.from_numpy(inside)
                assert torch.equal(inputs[place][kept], x[torch.from_numpy(rows)])
                assert torch.equal(target[place][kept], y[torch.from_numpy(rows)])
                assert not share[place][~kept].any()
                if len(rows):
                    assert share[place].sum().item() == pytest.approx(1)


def test_only_a_padded_batch_is_partial():
    data = unlike_clients().train
    clients = np.arange(len(data.sizes))
    longest = int(data.sizes.max())

    def made(solver, steps, width):
        return batches(data, clients, solver, [Group(slice(0, len(clients)), steps, width)])[1][0]

    assert not made(fp.Solver(steps=2, batch=1), 2, 1).partial
    done = made(fp.Solver(epochs=1, batch=1), longest, 1)  # some before others, none is padded
    assert done.mask is not None
    assert not done.partial
    assert made(fp.Solver(steps=1, batch=100), 1, longest).partial


def test_split_vectors_are_written_through_their_views():
    layout = Layout(nn.Linear(3, 2))
    whole = Slotted.of(layout, torch.zeros(5, layout.size))
    first, second = whole.split([2, 3])
    first.pieces[0].fill_(1.0)
    second.pieces[1].fill_(2.0)
    assert torch.equal(whole.flat[:2], torch.tensor([1.0] * 6 + [0.0] * 2).expand(2, -1))
    assert torch.equal(whole.flat[2:], torch.tensor([0.0] * 6 + [2.0] * 2).expand(3, -1))
    assert torch.equal(first.flat, whole.flat[:2])
    assert whole.split([5]) == [whole]


@pytest.mark.parametrize("written_out", [False, True], ids=["lifted", "chain"])
def test_work_laid_out_gives_the_update_of_work_made_by_the_lane(written_out):
    made = fp.Experiment(unlike_clients(), "mlp(hidden=4)", solver=SOLVERS[0]).setup
    x, buffers = made.layout.read(made.module)
    before, data = x.clone(), made.federation.train
    clients, down = np.arange(len(made.federation)), Down("train", 1, 0.1, x, buffers)
    room = Slotted.of(made.layout, torch.full((len(clients), len(x)), torch.nan))
    start = Slotted.of(made.layout, x.expand(len(clients), -1))
    plan = made.solver.batches(made.seeds(down, clients, "batches"), data.sizes)
    everyone = Group(slice(0, len(clients)), *plan.index.shape[1:])
    (planned,) = Batches.by_group(data, clients, plan, [everyone])
    ups = []
    for work in (None, Work(start, room, planned)):
        lane = Stack(made, down, clients, chain=Chain.of(made) if written_out else None, work=work)
        rule = Rule({}, made.layout, down, 1.0, {})
        ups.append(lane.descend(lane.spread(x), buffers, rule).delta)
    assert ups[1] is room.flat
    assert torch.equal(*ups)
    assert torch.equal(x, before)
    assert ups[0].abs().max() > 1e-3


@pytest.mark.parametrize("count", [1, 5, 7, 12])
def test_chunks_are_neighbours_of_almost_one_width(count):
    engine = VmapEngine(fp.Experiment(unlike_clients(), "linear").setup, chunk=3)
    chunks = engine._chunks(count)
    widths = [chunk.stop - chunk.start for chunk in chunks]
    assert [i for chunk in chunks for i in range(chunk.start, chunk.stop)] == list(range(count))
    assert max(widths) <= 3
    assert max(widths) - min(widths) <= 1
    engine.close()


@pytest.mark.parametrize(("count", "chunks"), [(1, 1), (2, 2), (7, 3)])
def test_work_that_fills_cores_is_divided_among_the_workers(count, chunks, monkeypatch):
    monkeypatch.setattr(vmapped, "FILLS_A_CORE", 1)
    monkeypatch.setattr(working, "cores", lambda: 3)
    engine = VmapEngine(fp.Experiment(unlike_clients(), "linear").setup, chunk=12)
    assert len(engine._chunks(count)) == chunks
    engine.close()
