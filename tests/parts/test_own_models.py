"""What holds of every method that trains a model of each client's own beside the shared one."""

from __future__ import annotations

import pytest
import torch
from logistic import evaluated, own
from scripted import after, bench
from torch import nn

import fedparity as fp
from fedparity.errors import InputError

STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        *((f"ditto(lam={lam})", 0.0) for lam in (0.0, 0.7, 5.0)),
        # Side by side with another track, the shared one goes over vectors in place of layers.
        *((f"apfl(alpha={alpha})", 1e-14) for alpha in (0.0, 0.4, 1.0)),
    ],
)
def test_the_shared_model_is_fedavgs_whatever_the_setting(unlike, text, apart):
    beside, fedavg = (
        after(bench(unlike, each, solver=STEPS, model="linear"), 3) for each in (text, "fedavg")
    )
    torch.testing.assert_close(beside, fedavg, rtol=0, atol=apart)


@pytest.mark.parametrize("text", ["ditto(lam=0)", "apfl(alpha=1)", "lp_proj(lam=0)"])
def test_a_setting_trains_everyone_alone(unlike, text):
    untied, alone = (bench(unlike, each, solver=STEPS, model="linear") for each in (text, "local"))
    for made in (untied, alone):
        after(made, 3)
    name = text.partition("(")[0]
    assert own(untied, name, "own") == pytest.approx(own(alone, "local", "own"), abs=1e-14)


@pytest.mark.parametrize("text", ["ditto", "apfl"])
def test_who_has_never_taken_part_is_evaluated_with_the_shared_model(unlike, text):
    made = bench(unlike, text, solver=STEPS, model="linear")
    made.advance(answering=[0, 3])
    personal, shared = evaluated(made), evaluated(made, "global")
    assert (personal == shared).tolist() == [False, True, True, False]


@pytest.mark.parametrize("text", ["ditto", "apfl"])
def test_statistics_of_batches_are_refused(unlike, text):
    def normed(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

    with pytest.raises(InputError, match="BatchNorm statistics"):
        bench(unlike, text, solver=STEPS, model=normed)


@pytest.mark.parametrize(
    ("text", "other"),
    [("ditto", "local"), ("ditto", "bn"), ("apfl", "local"), ("apfl", "bn"), ("apfl", "ditto")],
)
def test_two_models_of_ones_own_are_refused(text, other):
    with pytest.raises(InputError, match=f"'{other}'"):
        fp.algorithm(f"{text}+{other}")
