"""Full batches read in place agree with the loop, whatever a method asks of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import smooth

import fedparity as fp
from fedparity.core.crew import HELD, Crew
from fedparity.engines import full
from fedparity.engines.full import FullBatches, reads_in_place
from fedparity.engines.vmapped import VmapEngine
from fedparity.testing import Bench

SIZES = (300, 70, 64, 9, 1)
ASKING = {
    "the plain step": "fedavg",
    "a factor on every gradient": "eagle(clip_min=0)",
    "losses at the end": "fedeba(signal=post)",
    "gradients over all examples": "fedeba_plus(alpha=0.5)",
    "corrected gradients": "scaffold+prox",
    "models of their own": "local",
    "losses at the start": "fedfv+momentum",
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(full, "BLOCK", 64 * 3)  # blocks of 64 examples of 3 numbers
    monkeypatch.setattr(full, "WORTH", 1)


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


def moved(federation, algorithm, engine):
    made = fp.Experiment(
        federation,
        "mlp(hidden=4)",
        algorithm,
        solver=fp.Solver(lr=0.1, steps=2),
        dtype="float64",
        engine=engine,
    )
    assert reads_in_place(made.setup)
    bench = Bench(made)
    for _ in range(3):
        bench.advance()
    return bench.tensors()


@pytest.mark.parametrize("algorithm", ASKING.values(), ids=ASKING)
def test_they_agree_with_the_loop(federation, algorithm):
    loop, stacked = (moved(federation, algorithm, engine) for engine in ("loop", "vmap"))
    assert loop.keys() == stacked.keys()
    for name, value in loop.items():
        torch.testing.assert_close(stacked[name], value, rtol=0, atol=1e-12)


def test_every_example_is_in_one_piece(federation):
    setup = fp.Experiment(federation, "linear", lstar="none").setup
    x, buffers = setup.layout.read(setup.module)
    engine = VmapEngine(setup)
    clients = np.arange(len(SIZES))
    down = fp.core.client.Down("train", 1, 0.1, x, buffers)
    lane = engine._lane(setup, down, clients)
    engine.close()
    assert isinstance(lane, FullBatches)
    seen = {place: [] for place in clients}
    for who, start, width in lane.pieces(federation.train):
        assert width <= 64
        seen[who.start] += range(start, start + width)
    assert [len(rows) for rows in seen.values()] == federation.train.sizes.tolist()
    assert all(rows == list(range(len(rows))) for rows in seen.values())


def test_stacks_are_for_small_full_batches_of_like_sizes(federation, monkeypatch):
    monkeypatch.setattr(full, "WORTH", 1_000_000)
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


def test_a_crew_streams_in_order_with_few_pieces_ahead():
    crew, begun = Crew(["a", "b"]), []

    def one(piece, desk):
        begun.append(piece)
        return piece

    for piece, found in enumerate(crew.stream(50, one)):
        assert found == piece
        assert len(begun) <= piece + 1 + 2 * HELD
    crew.close()
    assert sorted(begun) == list(range(50))
