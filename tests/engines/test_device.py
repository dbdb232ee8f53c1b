"""On an accelerator no tensor strays, and the numbers are the processor's.

There is none here: ``pretended`` is a device whose tensors refuse to meet those of the processor.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from nets import Recurrent, Tied, conv, dropping, normed, smooth
from pretended import StrayError, There, pretended

import fedparity as fp
from fedparity.engines import choice
from fedparity.engines import engine as working
from fedparity.engines.device import DeviceEngine
from fedparity.engines.reference import lane as single
from fedparity.engines.stacked import in_place, pooled
from fedparity.learning import seeds
from fedparity.learning.device import chosen
from fedparity.learning.tasks import TASKS
from fedparity.method.messages import Down
from fedparity.parts import PARTS
from fedparity.run import preparing
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench, Trial

ENGINES = ("loop", "vmap")
ROUNDS = 2


@pytest.fixture(autouse=True)
def _noise_of_privacy_that_is_the_same_on_both(monkeypatch):
    monkeypatch.setattr(seeds, "secrets", SimpleNamespace(token_bytes=bytes))
    drawn = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=0: drawn(seed))


def played(bench: Bench) -> dict[str, torch.Tensor]:
    """Return the whole state after some rounds, and all that is measured of the clients then."""
    for _ in range(ROUNDS):
        bench.advance()
    found = bench.tensors()
    x, shared = bench.setup.algorithm.served(bench.server)
    down = Down("evaluate", bench.round, 0.1, x, bench.server.buffers, shared)
    for split in ("train", "validation"):
        data = getattr(bench.setup.federation, split)
        for model, values in bench.door.evaluate(down, split).items():
            found |= {f"{split}/{model}/{k}": torch.from_numpy(v) for k, v in values.items()}
        if bench.door.personal:
            each = bench.door.each_personal(down, data)
            found |= {f"{split}/each/{key}": value for key, value in each.items()}
    return found


def same_on_both(bench: Bench, float64: bool = True) -> None:
    """Play on the processor and on a device: the same numbers, but for rounding."""
    here = played(bench)
    rounding = 1e-12 if float64 else 1e-3
    with pretended(float64) as name:
        bench.setup = replace(bench.setup, device=name)
        bench.engine = choice.make(bench.setup, bench.engine.name, bench.experiment.chunk)
        assert isinstance(bench.engine, DeviceEngine)
        assert isinstance(bench.engine.there.setup.federation.train.x, There)
        bench.restart()
        there = played(bench)
    assert here.keys() == there.keys()
    for key, value in here.items():
        assert type(there[key]) is torch.Tensor
        torch.testing.assert_close(
            there[key],
            value,
            rtol=rounding,
            atol=rounding,
            equal_nan=True,
            check_dtype=float64,
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PARTS)
def test_every_part(name, engine):
    same_on_both(Bench(Trial(rounds=ROUNDS).experiment([PARTS[name]()], engine=engine)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PARTS)
def test_every_part_on_a_device_without_float64(name, engine):
    trial = Trial(rounds=ROUNDS)
    made = Bench(trial.experiment([PARTS[name]()], engine=engine, dtype="float32"))
    same_on_both(made, float64=False)


@pytest.fixture(scope="module")
def images() -> fp.Federation:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 1, 6, 6)), rng.integers(0, 3, 30)
    split = np.tile(["train", "train", "train", "train", "validation"], 6)
    return fp.Federation.from_arrays(x, y, np.repeat([0, 1, 2], 10), split, outputs=3)


def path(federation, task, algorithm="fedavg", solver=None, **more) -> Bench:
    """Return a bench of another model, task, algorithm or solver."""
    solver = solver or fp.Solver(lr=0.1, steps=3, batch=4)
    known = {"dtype": "float64", "lstar": "none", **more}
    return Bench(Experiment(federation, task, algorithm, solver=solver, **known))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["linear", smooth, conv, Tied])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedeba_plus(alpha=0.5)+scaffold"])
def test_every_way_through_a_model(unlike, images, model, engine, algorithm):
    same_on_both(path(images if model is conv else unlike, model, algorithm, engine=engine))


@pytest.mark.parametrize("algorithm", ["fedavg", "bn", "fedrep", "finetune", "fedfv"])
@pytest.mark.parametrize("engine", ENGINES)
def test_statistics_of_batches(alike, engine, algorithm):
    same_on_both(path(alike, normed, algorithm, engine=engine, buffers="local"))
    same_on_both(path(alike, normed, algorithm, fp.Solver(lr=0.1, steps=2), engine=engine))


@pytest.mark.parametrize("model", [dropping, Recurrent])
def test_layers_that_draw_or_remember(unlike, model):
    same_on_both(path(unlike, model, "qffl", engine="loop"))


SOLVERS = {
    "full batch": fp.Solver(lr=0.1, steps=3),
    "epochs of unlike steps": fp.Solver(lr=0.05, epochs=2, batch=3, momentum=0.9, clip=0.1),
    "adam": fp.Solver(lr=0.01, epochs=2, batch=3, optimizer="adam", weight_decay=0.1),
    "lots": fp.Solver(lr=0.1, steps=2, batch=3, lots="poisson"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_every_solver(unlike, solver, engine):
    same_on_both(path(unlike, "mlp(hidden=4)", "prox+momentum", solver, engine=engine, chunk=None))


def test_chunks(unlike):
    same_on_both(path(unlike, "mlp(hidden=4)", "fedfv", engine="vmap", chunk=2))


def test_full_batches_in_blocks(monkeypatch):
    monkeypatch.setattr(in_place, "CHAIN_BLOCK", 1)
    monkeypatch.setattr(single, "CONVOLUTION_BLOCK", 1)
    monkeypatch.setattr(pooled, "COHORT_BLOCK", 1)
    monkeypatch.setattr(working, "FILLS_A_CORE", 1)
    rng = np.random.default_rng(0)
    x, y, owner = rng.standard_normal((210, 1, 6, 6)), rng.integers(0, 3, 210), [0] * 200 + [1] * 10
    federation = fp.Federation.from_arrays(x, y, owner, outputs=3)
    for model, engine in ((conv, "loop"), ("linear", "vmap")):
        same_on_both(path(federation, model, "fedfv", fp.Solver(lr=0.1, steps=2), engine=engine))


def tasks() -> dict[str, tuple[fp.Task, np.ndarray, str]]:
    """Return each task with targets of 24 examples and their kind."""
    rng = np.random.default_rng(0)
    classes, values = rng.integers(0, 2, 24), rng.standard_normal((24, 2))
    times = np.stack([rng.uniform(0, 3, 24), classes], 1)
    return {
        "classification": (fp.Classification("linear", weights=[1, 3]), classes, "classes"),
        "binary": (TASKS["binary"]("linear"), classes, "classes"),
        "multi_label": (TASKS["multi_label"]("linear"), rng.integers(0, 2, (24, 3)), "labels"),
        "regression": (fp.Regression("linear"), values, "values"),
        "survival": (TASKS["survival"]("linear"), times, "survival"),
        "next_token": (
            fp.NextToken("char_lstm(embedding=2, hidden=3)"),
            rng.integers(0, 5, (24, 3)),
            "tokens",
        ),
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TASKS)
def test_every_task(name, engine):
    task, y, kind = tasks()[name]
    if name == "next_token" and engine == "vmap":
        pytest.skip("torch has no rule to lift an LSTM")
    x = y if kind == "tokens" else np.random.default_rng(1).standard_normal((24, 3))
    outputs = {"tokens": 5, "survival": 3}.get(kind)
    split = np.tile(["train", "train", "validation"], 8)
    federation = fp.Federation.from_arrays(
        x, y, np.repeat([0, 1], 12), split, kind=kind, outputs=outputs
    )
    same_on_both(path(federation, task, "fedfv+ditto", engine=engine))


MODELS_HERE = {
    "lenet(padding=2)": (1, 12, 12),
    "cnn(channels=2, hidden=4)": (1, 16, 16),
    "cnn5(channels=2, hidden=4)": (1, 8, 8),
    "vit(dim=8, depth=1, heads=2, hidden=8)": (1, 8, 8),
    "pair_lstm(vocabulary=5, embedding=2, hidden=3)": (2, 4),
}


@pytest.mark.parametrize("model", MODELS_HERE)
def test_models_of_the_library(model):
    shape = MODELS_HERE[model]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (12, *shape)) if "lstm" in model else rng.random((12, *shape))
    federation = fp.Federation.from_arrays(x, rng.integers(0, 2, 12), [0, 1] * 6, outputs=2)
    same_on_both(path(federation, model, solver=fp.Solver(lr=0.1, steps=1), engine="loop"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_whole_run(unlike, engine, tmp_path, monkeypatch):
    """Training alone for L*, rounds, evaluation, predictions, personal models and metrics."""

    def run(folder):
        return Experiment(
            unlike,
            "mlp(hidden=4)",
            "eagle+ditto",
            rounds=2,
            dtype="float64",
            engine=engine,
            lstar="best_validation(rounds=3)",
            metrics=("balanced_accuracy",),
            predictions=True,
            personal=True,
        ).run(folder)

    here = run(tmp_path / "here")
    with pretended() as name:
        monkeypatch.setattr(preparing, "chosen", lambda asked: name)
        there = run(tmp_path / "there")
    pd.testing.assert_frame_equal(there.clients, here.clients, rtol=1e-11)
    pd.testing.assert_frame_equal(there.predictions, here.predictions, rtol=1e-11)


class Strays(fp.Part):
    """A part that makes a tensor on the processor, whatever the device."""

    name = "strays"

    def grad(self, g, y, c):
        return g + torch.ones(g.shape, dtype=g.dtype, device="cpu")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tensor_that_strays_is_found(engine):
    with pytest.raises(Exception, match="is on the processor") as found:
        same_on_both(Bench(Trial(rounds=1).experiment([Strays()], engine=engine)))
    assert isinstance(found.value.__cause__ or found.value, (StrayError, RuntimeError))


def test_a_device_that_is_not_there_is_refused_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(fp.InputError, match=r"device 'cuda': torch .* finds none here"):
        Trial().experiment([], device="cuda")
    assert chosen("auto") in ("cpu", "mps")


def test_a_device_without_float64_refuses_it_in_one_line(monkeypatch):
    monkeypatch.setattr(preparing, "chosen", lambda asked: "mps")
    with pytest.raises(fp.InputError, match="device 'mps' has no float64: take dtype 'float32'"):
        Trial().experiment([], device="mps")
