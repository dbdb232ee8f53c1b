"""With replacement, a client drawn twice counts as if it stood in the cohort twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import FIXTURE, PRE, SIZES, Script, bench, line, matrix, parabolas, vector

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import (
    AFL,
    QFFL,
    TERM,
    AAggFF,
    CoreFed,
    Eagle,
    FedDisco,
    FedEBA,
    FedEBAPlus,
    FedFa,
    FedFV,
    FedMGDAPlus,
    FedwAvg,
    MaxFL,
    MultiKrum,
    Part,
    PracFedEBAPlus,
    Uniform,
)
from fedparity.run.sampling import Sampling

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
        "accuracy": torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64),
        "counts": torch.tensor([[9.0, 1.0], [3.0, 4.0], [0.0, 5.0]], dtype=torch.float64),
        "forgotten": torch.tensor([0.1, 0.5, 0.2], dtype=torch.float64),
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
        FedFa(alpha=0.5),
        FedFa(alpha=0.0, momentum="heavy"),
        FedDisco(a=0.1),
        FedDisco(a=0.5, whole="clients", metric="l2", normalise="sum"),
        FedFV(alpha=0.0, tau=0),
        FedFV(alpha=0.5, tau=1),
        FedFV(alpha=0.2, tau=2, mean="given"),
        FedMGDAPlus(eps=0.1),
        FedMGDAPlus(eps=0.1, length="unit"),
        FedwAvg(alpha=0.4),
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


class Draws(Sampling):
    """Draws the first of four clients twice, and the last one never."""

    name = "draws"
    weighting = "uniform"
    absence = True

    def draw(self, round, state, who, losses):
        return np.asarray(TWICE), state


@pytest.mark.parametrize("algorithm", ["fedmdfg(theta=2)", "fedmdfg(theta=80)", "rank_core_fed"])
def test_a_run_is_that_of_a_federation_in_which_it_stands_twice(algorithm):
    curvatures, minima = (
        [[1.0, 2.0], [3.0, 0.5], [0.4, 1.0]],
        [[3.0, -1.0], [-2.0, 1.0], [0.5, 4.0]],
    )
    found = []
    for sampling, places in ((Draws(), [0, 1, 2, 1]), ("uniform", TWICE)):
        clients = parabolas([curvatures[k] for k in places], [minima[k] for k in places])
        made = fp.Experiment(
            clients,
            fp.Regression(line),
            algorithm,
            rounds=4,
            solver=fp.Solver(lr=0.05, steps=1),
            cohort=4,
            sampling=sampling,
            weighting="uniform",
            lstar="none",
            dtype="float64",
            engine="loop",
        )
        found.append(next(made.run().model().parameters()).detach())
    torch.testing.assert_close(*found, rtol=0, atol=1e-9)


@pytest.mark.parametrize("part", [AFL(eta=0.1, order="weights_first"), AAggFF(solver="ftrl")])
def test_its_share_of_a_mixture_moves_once_and_is_averaged_twice(part):
    once, twice = Script([part], by_size=False), Script([part], by_size=False, cohort=4)
    once.play(FIXTURE, loss=PRE)
    before = twice.server.x
    found = twice.play(FIXTURE, times=(2, 1, 1), loss=PRE) - before
    mixture = twice.state(part.name)["mixture"]
    torch.testing.assert_close(mixture, once.state(part.name)["mixture"])
    shares = mixture * vector(2, 1, 1)
    torch.testing.assert_close(found, shares / shares.sum() @ FIXTURE)


def test_scaff_pd_which_asks_everyone_refuses_it(unlike):
    known = {"solver": fp.Solver(lr=0.1, steps=1), "sampling": "size_replaced"}
    with pytest.raises(InputError, match="'scaff_pd' needs every client in every round"):
        bench(unlike, "scaff_pd", model="linear", **known)


def test_krum_lets_nobody_vouch_for_itself():
    """Three clients drawn nine times: the one that is far off stays far off."""
    script = Script([MultiKrum(faulty=0.34)], by_size=False, cohort=9)
    deltas = matrix((0.1, 0.0), (0.2, 0.0), (9.0, 9.0))
    before = script.server.x
    found = script.play(deltas, times=(2, 1, 6)) - before
    torch.testing.assert_close(found, (2 * deltas[0] + deltas[1]) / 3)


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
