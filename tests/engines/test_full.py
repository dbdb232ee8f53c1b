"""Full batches read in place agree with the loop, whatever a method asks of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import smooth

import fedparity as fp
from fedparity.engines import engine as engine_setup
from fedparity.engines.stacked import in_place as full
from fedparity.engines.stacked.engine import VmapEngine
from fedparity.engines.stacked.in_place import FullBatches, reads_in_place
from fedparity.testing import Bench

SIZES = (300, 70, 64, 9, 1)
ASKING = {
    "the plain step": "fedavg",
    "a factor on every gradient": "eagle(apply=gradient)",
    "losses at the end": "fedeba(signal=post)",
    "gradients over all examples": "fedeba_plus(alpha=0.5)",
    "corrected gradients": "scaffold+prox",
    "models of their own": "local",
    "losses at the start": "fedfv+momentum",
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(full, "CHAIN_BLOCK", 64 * 3)  # blocks of 64 examples of 3 numbers
    monkeypatch.setattr(engine_setup, "FILLS_A_CORE", 1)


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    split = np.where(rng.random(len(owner)) < 0.8, "train", "validation")
    split[-1] = "train"
    return fp.Federation.from_arrays(
        rng.standard_normal((len(owner), 3)),
        rng.integers(0, 3, len(owner)),
        owner,
        split,
        outputs=3,
    )


SOLVERS = {
    "momentum": fp.Solver(lr=0.1, steps=2, momentum=0.9),
    "weight decay": fp.Solver(lr=0.1, steps=2, weight_decay=0.1),
    "adam": fp.Solver(lr=0.01, steps=2, optimizer="adam"),
    "clipping": fp.Solver(lr=0.1, steps=2, clip=0.05),
}


def moved(federation, algorithm, engine, solver=None, clients=None, chunk=None):
    made = fp.Experiment(
        federation,
        "mlp(hidden=4)",
        algorithm,
        solver=solver or fp.Solver(lr=0.1, steps=2),
        dtype="float64",
        engine=engine,
        chunk=chunk if engine == "vmap" else None,
    )
    assert reads_in_place(made.setup)
    bench = Bench(made)
    for _ in range(3):
        bench.advance(*([] if clients is None else [clients]))
    return bench.tensors()


def agree(federation, algorithm, **more):
    loop, stacked = (moved(federation, algorithm, engine, **more) for engine in ("loop", "vmap"))
    assert loop.keys() == stacked.keys()
    for name, value in loop.items():
        torch.testing.assert_close(stacked[name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", ASKING.values(), ids=ASKING)
def test_they_agree_with_the_loop(federation, algorithm):
    agree(federation, algorithm)


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_they_agree_with_the_loop_whatever_the_step(federation, solver):
    agree(federation, "fedavg", solver=solver)


def test_they_agree_with_the_loop_on_a_part_of_the_clients(federation):
    agree(federation, "qffl", clients=[1, 3, 4])


@pytest.mark.parametrize("algorithm", ["eagle(apply=gradient)", "fedeba_plus(alpha=0.5)"])
def test_they_agree_with_the_loop_in_chunks(federation, algorithm):
    agree(federation, algorithm, chunk=2)


def test_they_agree_with_the_loop_on_values(federation):
    train = federation.train
    values = fp.Federation.from_arrays(train.x.numpy(), train.x.sum(1).numpy(), train.owner.numpy())
    agree(values, "fedavg")


def test_a_task_may_view_outputs_as_it_likes(federation):
    class Viewing(fp.Classification):
        def metrics(self, output, target):
            return {"size": output.view(-1).abs().view(output.shape).mean(-1)}

    made = fp.Experiment(
        federation,
        Viewing("linear"),
        "fedeba(signal=post)",
        solver=fp.Solver(lr=0.1, steps=1),
        lstar="none",
        engine="vmap",
    )
    Bench(made).advance()


def test_every_example_is_in_one_block(federation):
    setup = fp.Experiment(federation, "linear", lstar="none").setup
    x, buffers = setup.layout.read(setup.module)
    engine = VmapEngine(setup)
    clients = np.arange(len(SIZES))
    down = fp.method.messages.Down("train", 1, 0.1, x, buffers)
    lane = engine._lane(setup, down, clients)
    engine.close()
    assert isinstance(lane, FullBatches)
    seen = {place: [] for place in clients}
    for who, start, width in lane.blocks(federation.train):
        assert width <= 64
        seen[who.start] += range(start, start + width)
    assert [len(rows) for rows in seen.values()] == federation.train.sizes.tolist()
    assert all(rows == list(range(len(rows))) for rows in seen.values())


def test_stacks_are_for_small_full_batches_of_like_sizes(federation, monkeypatch):
    monkeypatch.setattr(engine_setup, "FILLS_A_CORE", 1_000_000)
    small = fp.Experiment(federation, "linear", lstar="none").setup
    assert not reads_in_place(small)
    assert full.uneven(np.array([600, 5, 5]))
    assert not full.uneven(np.array([500, 5, 5]))
    assert not full.uneven(np.array([600, 200, 200]))


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (smooth, fp.Solver()),
        ("linear", fp.Solver(batch=5)),
    ],
)
def test_only_chains_and_full_batches_are_read_in_place(federation, model, solver):
    assert not reads_in_place(fp.Experiment(federation, model, solver=solver, lstar="none").setup)
