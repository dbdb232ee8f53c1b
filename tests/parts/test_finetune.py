"""Fine-tuning: some local steps from the shared model before every evaluation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from logistic import evaluated, gradient, loss, own, whole
from scripted import after, bench
from torch import nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.method.algorithm import Algorithm

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)
FULL = fp.Solver(lr=0.1, steps=1)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_clients_are_evaluated_after_steps_from_the_shared_model(unlike, engine):
    made = bench(unlike, "finetune(steps=4)", solver=FULL, model="linear", engine=engine)
    x = after(made, 2).numpy()
    wanted = []
    for k in range(4):
        v = x.copy()
        for _ in range(4):
            v = v - 0.1 * gradient(v, whole(made, k))
        wanted.append(loss(v, whole(made, k)))
    assert evaluated(made) == pytest.approx(wanted, abs=1e-12)
    assert evaluated(made, "global") == pytest.approx(
        [loss(x, whole(made, k)) for k in range(4)], abs=1e-12
    )


@pytest.mark.parametrize("solver", [STEPS, fp.Solver(lr=0.1, epochs=1, batch=4, momentum=0.5)])
def test_engines_agree_on_batches(unlike, solver):
    loop, vmap = (
        bench(unlike, "finetune(steps=5)", solver=solver, model="mlp(hidden=4)", engine=engine)
        for engine in ("loop", "vmap")
    )
    for made in (loop, vmap):
        made.advance()
    assert evaluated(loop) == pytest.approx(evaluated(vmap), abs=1e-12)
    assert not np.allclose(evaluated(loop), evaluated(loop, "global"))


def test_every_split_is_evaluated_with_the_same_model_and_an_evaluation_repeats(unlike):
    made = bench(unlike, "finetune(steps=5)", solver=STEPS, model="linear")
    made.advance()
    assert evaluated(made).tolist() == evaluated(made).tolist()
    other = bench(unlike, "finetune(steps=5)", solver=STEPS, model="linear")
    other.advance()
    evaluated(other, split="test")
    assert evaluated(other).tolist() == evaluated(made).tolist()


def test_without_steps_nothing_is_personal(unlike):
    made = bench(unlike, "finetune(steps=0)", solver=STEPS, model="linear")
    made.advance()
    with pytest.raises(KeyError):
        evaluated(made)


def test_the_shared_model_is_that_of_the_parts_beside_it(unlike):
    tuned, plain = (
        after(bench(unlike, text, solver=STEPS, model="linear"), 2)
        for text in ("prox+finetune", "prox")
    )
    assert torch.equal(tuned, plain)


@pytest.mark.parametrize("other", ["prox(mu=3)", "fedsgd", "momentum"])
def test_no_other_part_acts_on_the_steps(unlike, other):
    made = bench(unlike, f"{other}+finetune(steps=2)", solver=FULL, model="linear")
    x = after(made).numpy()
    v = x.copy()
    for _ in range(2):
        v = v - 0.1 * gradient(v, whole(made, 0))
    assert evaluated(made)[0] == pytest.approx(loss(v, whole(made, 0)), abs=1e-12)


def test_after_ditto_the_steps_start_from_the_clients_own_model(unlike):
    made = bench(unlike, "ditto+finetune(steps=1)", solver=FULL, model="linear")
    after(made, 2)
    v = own(made, "ditto", "own")[1]
    v = v - 0.1 * gradient(v, whole(made, 1))
    assert evaluated(made)[1] == pytest.approx(loss(v, whole(made, 1)), abs=1e-12)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_statistics_of_batches_follow_the_steps(engine):
    federation = fp.testing.unlike_clients((8, 8, 8))

    def normed(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

    made = bench(federation, "finetune(steps=2)", solver=FULL, model=normed, engine=engine)
    made.advance()
    model = copy.deepcopy(made.setup.module)
    made.setup.layout.write(model, made.server.x, made.server.buffers).train()
    x, y = federation.train.client(0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    wanted = nn.functional.cross_entropy(model.eval()(x), y).item()
    assert evaluated(made)[0] == pytest.approx(wanted)


def test_dropout_of_the_steps_is_the_clients_own(unlike):
    def dropping(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.Dropout(0.5), nn.Linear(4, outputs))

    made = bench(unlike, "finetune(steps=2)", solver=FULL, model=dropping)
    made.advance()
    first = evaluated(made)
    torch.rand(1)  # where torch's generator stands does not matter
    assert evaluated(made).tolist() == first.tolist()


def test_two_that_train_before_an_evaluation_are_refused():
    class Other(fp.Part):
        name = "other"
        tuning = 2

    with pytest.raises(InputError, match="both train before an evaluation"):
        Algorithm([fp.algorithm("finetune").parts[0], Other()])
