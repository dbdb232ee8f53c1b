"""Core-Fed and Rank-Core-Fed: their weights, limits, and a model that no group can veto."""

from __future__ import annotations

from itertools import combinations
from math import ceil

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scripted import FIXTURE, PRE, Script, after, bench, matrix, parabolas, vector

import fedparity as fp
from fedparity.parts import CoreFed, PropFair, RankCoreFed

ONE = fp.Solver(lr=0.05, steps=1)


def test_weights_are_the_inverse_utilities():
    # 1/2, 1/1, 1/2.5 over their sum 1.9; by size the first counts twice
    x = Script([CoreFed(M=3.0)]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(1, 2) + vector(0.5, 1.0, 0.4) / 1.9 @ FIXTURE)
    x = Script([CoreFed(M=3.0, prior="size")]).play(FIXTURE, loss=PRE)
    torch.testing.assert_close(x, vector(1, 2) + vector(1.0, 1.0, 0.4) / 2.4 @ FIXTURE)


@pytest.mark.parametrize("losses", [PRE, (4.9, 7.0, 0.1)])
def test_weights_are_the_slopes_of_propfair(losses):
    at = vector(*losses).requires_grad_()
    (slopes,) = torch.autograd.grad(PropFair(M=5.0, eps=0.2).disutility(at).sum(), at)
    found = CoreFed(M=5.0, eps=0.2).shares(vector(*losses), torch.ones(3))
    torch.testing.assert_close(found, slopes / slopes.sum())


def test_raising_a_clients_loss_does_not_lower_its_weight():
    found = [
        float(CoreFed(M=3.0).shares(vector(loss, 2.0, 0.5), torch.ones(3))[0])
        for loss in (0.5, 1.0, 2.0, 2.9, 50.0)
    ]
    assert found == sorted(found)


def test_it_climbs_the_sum_of_logarithms():
    # with F_1 = x^2 and F_2 = 3 (x - 1)^2 the slope of log(2 - F_1) + log(2 - F_2) ends at 0
    toy = parabolas([[1.0], [3.0]], [[0.0], [1.0]])
    x = float(after(bench(toy, "core_fed(M=2, eps=0.01)", [0.7], solver=ONE), 400))
    assert 2 * x / (2 - x**2) + 6 * (x - 1) / (2 - 3 * (x - 1) ** 2) == pytest.approx(0, abs=1e-9)


def reference(history: np.ndarray, losses: np.ndarray, least: float = 0.01) -> np.ndarray:
    """The slopes of log Phi over the pool, normalised, in numpy and scipy."""
    s = np.maximum(history.std(1), least)
    z = (history.mean(1) - losses) / s
    a = norm.pdf(z) / (s * norm.cdf(z))
    return a / a.sum()


def test_weights_are_the_slopes_of_the_smooth_ranks():
    script, rng = Script([RankCoreFed(pool=3)]), np.random.default_rng(0)
    told = rng.uniform(0.2, 3, (6, 3))
    for t, losses in enumerate(told):
        before = script.server.x
        x = script.play(FIXTURE, loss=losses.tolist())
        pool = told[max(0, t - 3) : t].T
        wanted = reference(pool, losses) if t > 1 else np.full(3, 1 / 3)
        torch.testing.assert_close(x, before + torch.from_numpy(wanted) @ FIXTURE)


def test_ranks_do_not_depend_on_the_scale_of_losses():
    past, losses = matrix((3.0, 2.0), (2.0, 1.5)), vector(1.5, 1.2)
    two = torch.tensor([2, 2])
    found = RankCoreFed().shares(losses, past, two)
    torch.testing.assert_close(RankCoreFed(least=0.05).shares(5 * losses, 5 * past, two), found)


def test_who_fell_behind_counts_more_and_nothing_overflows():
    past, two = matrix((1.0, 1.2), (1.0, 1.2)), torch.tensor([2, 2])
    found = [
        float(RankCoreFed().shares(vector(loss, 1.1), past, two)[0])
        for loss in (-1e3, 0.5, 1.1, 2.0, 1e3)
    ]
    assert found == sorted(found)
    assert np.isfinite(found).all()


def test_clients_without_a_pool_have_the_mean_weight():
    found = RankCoreFed().shares(
        vector(1.0, 2.0, 3.0), matrix((2.0, 1.5), (9.0, 0.0), (4.0, 3.0)), torch.tensor([2, 1, 2])
    )
    assert float(found[1]) == pytest.approx(1 / 3)
    assert float(found.sum()) == pytest.approx(1)


def vetoed(losses: np.ndarray) -> set[int]:
    """Return the models that some group of clients blocks, of losses ``[clients, models]``."""
    clients, models = losses.shape
    found = set()
    for a in range(models):
        for size in range(1, clients + 1):
            for group in combinations(range(clients), size):
                better = int((losses[list(group)] < losses[list(group), a][:, None]).all(0).sum())
                if models - better <= ceil(models * size / clients) - 1:
                    found.add(a)
    return found


CURVES, MINIMA = np.array([0.3, 0.3, 1.0]), np.array([-1.0, 0.0, 2.0])


def losses_at(models: np.ndarray) -> np.ndarray:
    """Return the losses ``[clients, models]`` of three clients on a line."""
    return CURVES[:, None] * (models - MINIMA[:, None]) ** 2


def path(algorithm: str) -> np.ndarray:
    toy = parabolas(CURVES[:, None].tolist(), MINIMA[:, None].tolist())
    made = bench(toy, algorithm, [-3.0], solver=ONE)
    return np.array([-3.0] + [float(after(made)) for _ in range(120)])


def test_no_group_would_leave_the_model_of_core_fed():
    found = path("core_fed(M=30, eps=0.1)")
    others = 30 - losses_at(np.linspace(-4, 4, 401))

    def left(x: float) -> bool:
        mine = 30 - losses_at(np.array([x]))
        groups = [list(g) for size in (1, 2, 3) for g in combinations(range(3), size)]
        return any((len(g) / 3 * others[g] > mine[g]).all(0).any() for g in groups)

    assert left(found[0])
    assert not left(found[-1])


def test_no_group_vetoes_the_model_of_rank_core_fed_among_those_on_the_way():
    found = path("rank_core_fed(least=0.1)")[::12]
    out = vetoed(losses_at(np.array([*found, *np.linspace(-1, 2, 4)])))
    assert 0 in out
    assert len(found) - 1 not in out
