"""With replacement, a client drawn twice counts as if it stood in the cohort twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, PRE, SIZES, Script, bench

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import (
    QFFL,
    TERM,
    CoreFed,
    Eagle,
    FedEBA,
    FedEBAPlus,
    FedFV,
    FedMGDAPlus,
    MaxFL,
    Part,
    PracFedEBAPlus,
    Uniform,
)

TWICE = [0, 0, 1, 2]
"""The places of the clients, of which the first is drawn twice."""


def two_rounds(part: Part, places: list[int], times: tuple[int, ...] = ()) -> torch.Tensor:
    """Return where two rounds lead with the clients in these places of the fixture."""
    script = Script([part], n=[SIZES[k] for k in places], by_size=False, cohort=4)
    loss = torch.tensor(PRE, dtype=torch.float64)
    told = {
        "loss": loss,
        "before": loss,
        "after": loss.flip(0),
        "norm2": (FIXTURE / 0.1).square().sum(1),
        "first": FIXTURE / 3,
        "grad": -FIXTURE,
    }
    steps = np.asarray([2, 3, 1])[places]
    for turned in (False, True):
        deltas = FIXTURE.flip(1) if turned else FIXTURE
        rows = {name: value[places] for name, value in told.items()}
        script.play(deltas[places], steps=steps.tolist(), times=times, **rows)
    return script.server.x


@pytest.mark.parametrize(
    "part",
    [
        CoreFed(),
        CoreFed(prior="size"),
        FedEBA(tau=1.0, floor=None),
        FedEBA(prior="size"),
        FedEBAPlus(alpha=0.5, theta=90.0),
        FedEBAPlus(alpha=0.5, theta=90.0, aggregate="given"),
        FedEBAPlus(alpha=0.5, theta=30.0),
        FedFV(alpha=0.0, tau=0),
        FedFV(alpha=0.5, tau=1),
        FedFV(alpha=0.2, tau=2, mean="given"),
        FedMGDAPlus(eps=0.1),
        FedMGDAPlus(eps=0.1, length="unit"),
        MaxFL(threshold=1.0),
        PracFedEBAPlus(),
        QFFL(q=1.0),
        QFFL(q=2.0, by_size=True),
        QFFL(q=1.0, static_step=True),
        TERM(t=1.0),
        TERM(t=-1.0, prior="size"),
        Uniform(),
    ],
    ids=repr,
)
def test_it_counts_as_if_it_stood_there_twice(part):
    found = two_rounds(part, [0, 1, 2], times=(2, 1, 1))
    torch.testing.assert_close(found, two_rounds(part, TWICE), rtol=0, atol=1e-12)
    assert float((found - two_rounds(part, [0, 1, 2])).norm()) > 1e-3


@pytest.mark.parametrize("normalise", ["none", "l2_unit", "l2_sqrtK"])
def test_eagles_weights_are_normalised_over_draws(normalise):
    part = Eagle(lam=0.05, weights="fresh", v_min=None, normalise=normalise)
    gaps = np.asarray([0.3, 1.0, 0.1])
    v = part.raw_weights(gaps)[TWICE]
    length = {"none": np.linalg.norm(v), "l2_unit": 1.0, "l2_sqrtK": 2.0}[normalise]
    v = v * length / np.linalg.norm(v)
    script = Script([part], by_size=False, cohort=4)
    before = script.server.x
    found = script.play(FIXTURE, times=(2, 1, 1), gap=gaps) - before
    wanted = torch.from_numpy(v / 4) @ FIXTURE[TWICE]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_equal_private_weights_refuse_draws_with_replacement(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=1), "cohort": 2, "sampling": "size_replaced"}
    with pytest.raises(InputError, match="drawn twice would count once"):
        bench(unlike, "dp_client(seeded=true, noise=0)", model="linear", **known)
    bench(unlike, "dp_client(seeded=true, noise=0, cap=2)", model="linear", **known).advance()
