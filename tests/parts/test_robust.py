"""Robust combination: fixtures, limits, and references in numpy, client by client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scripted import Script, matrix, vector
from torch import Tensor

import fedparity as fp
from fedparity.errors import InputError
from fedparity.method import Part
from fedparity.parts import (
    AFL,
    QFFL,
    TERM,
    Cap,
    CoordinateMedian,
    FedFV,
    GeometricMedian,
    MultiKrum,
    NormClip,
    TrimmedMean,
    Varp,
)
from fedparity.parts.robust.cap import capped
from fedparity.recipes import algorithm
from fedparity.testing import Trial, unlike_clients

COMBINING = [CoordinateMedian(), GeometricMedian(), MultiKrum(), TrimmedMean(share=0.25)]
ALL = [*COMBINING, NormClip()]


def step(part: Part, updates: Tensor, n: tuple[int, ...] | None = None) -> Tensor:
    x = torch.zeros_like(updates[0])
    return Script([part], x, n=n or [1] * len(updates)).play(updates)


def drawn(m: int, d: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(m, d, dtype=torch.float64, generator=draw)


# What they are for


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.name)
def test_one_wild_update_of_five_moves_the_model_little(part):
    good = matrix((1.0, 1.0), (1.1, 0.9), (0.9, 1.1), (1.0, 1.2))
    found = step(part, torch.cat([good, matrix((1e6, -1e6))]))
    assert float((found - good.mean(0)).abs().max()) < 0.75
    assert float((step(Cap(share=1.0), torch.cat([good, matrix((1e6, -1e6))]))).abs().max()) > 1e5


@pytest.mark.parametrize("part", COMBINING, ids=lambda part: part.name)
def test_a_minority_of_another_kind_is_cut_off(part):
    # Three clients of five want coordinate 0, one coordinate 1: FedAvg moves 0.2 there.
    majority = matrix((1.0, 0.0), (1.0, 0.01), (1.0, -0.01), (1.0, 0.02))
    found = step(part, torch.cat([majority, matrix((0.0, 1.0))]))
    assert float(found[1]) < 0.1


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.name)
def test_equal_updates_are_followed(part):
    torch.testing.assert_close(step(part, vector(1.0, -2.0).expand(5, 2)), vector(1.0, -2.0))


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.name)
def test_updates_of_zero_leave_the_model(part):
    assert step(part, torch.zeros(5, 2, dtype=torch.float64)).tolist() == [0.0, 0.0]


# Medians and means by coordinate


def sorted_with_copies(updates: np.ndarray, n: tuple[int, ...]) -> np.ndarray:
    """Return each coordinate in order, a client of weight n as n clients."""
    return np.sort(np.repeat(updates, n, axis=0), axis=0)


@pytest.mark.parametrize("n", [(1, 1, 1, 1, 1), (1, 1, 1, 1), (3, 1, 2, 1, 2), (3, 1, 4)])
def test_the_coordinate_median_is_that_of_clients_counted_by_weight(n):
    updates = drawn(len(n), 7)
    wanted = np.median(sorted_with_copies(updates.numpy(), n), axis=0)
    np.testing.assert_allclose(step(CoordinateMedian(), updates, n).numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "share", "dropped"),
    [((1, 1, 1, 1, 1), 0.2, 1), ((1,) * 10, 0.3, 3), ((3, 1, 2, 2), 0.125, 1), ((3, 2, 5), 0.4, 4)],
)
def test_the_trimmed_mean_drops_so_many_copies_at_each_end(n, share, dropped):
    updates = drawn(len(n), 7)
    rows = sorted_with_copies(updates.numpy(), n)
    wanted = rows[dropped : len(rows) - dropped].mean(0)
    found = step(TrimmedMean(share=share), updates, n)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


def test_half_a_client_is_trimmed_in_part():
    # b = 0.1 of five clients: half of the least and half of the largest of 0, 1, 2, 3, 14.
    # (0 / 2 + 1 + 2 + 3 + 14 / 2) / (5 - 1) = 13 / 4
    updates = vector(0.0, 1.0, 2.0, 3.0, 14.0)[:, None]
    torch.testing.assert_close(step(TrimmedMean(share=0.1), updates), vector(3.25))


def test_the_trimmed_mean_ends_in_the_median():
    updates = drawn(7, 5)
    torch.testing.assert_close(
        step(TrimmedMean(share=0.499), updates), step(CoordinateMedian(), updates)
    )


# Geometric median


@pytest.mark.parametrize("n", [(1, 1, 1, 1, 1), (3, 1, 2, 1, 2)])
def test_the_geometric_median_has_the_least_summed_distance(n):
    updates = drawn(5, 4)
    rows, weights = updates.numpy(), np.array(n) / sum(n)

    def summed(z: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(rows - z, axis=1))

    wanted = minimize(summed, rows.mean(0), method="BFGS", options={"gtol": 1e-9}).x
    found = step(GeometricMedian(iterations=500), updates, n)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)


def test_three_weiszfeld_steps_are_those_of_the_reference():
    updates = drawn(6, 9)
    rows = updates.numpy()
    z = rows.mean(0)
    for _ in range(3):
        beta = 1 / np.maximum(0.5, np.linalg.norm(rows - z, axis=1))
        z = beta @ rows / beta.sum()
    np.testing.assert_allclose(
        step(GeometricMedian(nu=0.5, iterations=3), updates).numpy(), z, atol=1e-12
    )


# Krum


@pytest.mark.parametrize(("m", "faulty", "f"), [(7, 0.3, 2), (8, 0.25, 2), (10, 0.1, 1)])
@pytest.mark.parametrize("single", [False, True])
def test_krum_keeps_the_updates_of_least_score(m, faulty, f, single):
    updates = drawn(m, 5, seed=m)
    rows = updates.numpy()
    score = [
        sum(sorted(float(((a - b) ** 2).sum()) for j, b in enumerate(rows) if j != k)[: m - f - 2])
        for k, a in enumerate(rows)
    ]
    best = np.argsort(score)[: 1 if single else m - f]
    found = step(MultiKrum(faulty=faulty, single=single), updates)
    np.testing.assert_allclose(found.numpy(), rows[best].mean(0), atol=1e-12)


def test_the_kept_share_the_weight_as_they_were_given_it():
    # the last is left out: (3 * 1 + 1 * 2 + 1 * 0) / 5
    updates = vector(1.0, 2.0, 0.0, 99.0)[:, None]
    torch.testing.assert_close(step(MultiKrum(), updates, (3, 1, 1, 5)), vector(1.0))


def test_the_kept_share_evenly_where_all_weight_was_on_those_left_out():
    script = Script([AFL(order="weights_first"), MultiKrum()], vector(0.0), n=[1, 1, 1, 1])
    found = script.play(vector(1.0, 2.0, 0.0, 99.0)[:, None], loss=(0.0, 0.0, 0.0, 50.0))
    torch.testing.assert_close(found, vector(1.0))


# Clipping and caps


def test_updates_are_clipped_to_a_multiple_of_the_median_length():
    # lengths 1, 2, 10, 3: median 2.5, twice that is 5
    updates = matrix((1, 0), (0, 2), (6, 8), (3, 0))
    found = step(NormClip(factor=2.0), updates)
    torch.testing.assert_close(
        found, (vector(1, 0) + vector(0, 2) + vector(3, 4) + vector(3, 0)) / 4
    )


@pytest.mark.parametrize(
    ("given", "share", "wanted"),
    [
        ((0.7, 0.2, 0.1), 0.5, (0.5, 0.3, 0.2)),
        ((0.3, 0.4, 0.3), 0.5, (0.3, 0.4, 0.3)),
        # 0.3 is cut off and poured out: 0.35 + 0.1 is above the cap too, so 0.25 + 0.05 + 0.1 / 2
        ((0.6, 0.3, 0.1, 0.0), 0.3, (0.3, 0.3, 0.25, 0.15)),
        ((1.0, 0.0, 0.0, 0.0), 0.3, (0.3, 0.7 / 3, 0.7 / 3, 0.7 / 3)),
        ((1.4, 0.4, 0.2), 0.5, (1.0, 0.6, 0.4)),
        ((0.9, 0.1), 0.3, (0.5, 0.5)),
    ],
)
def test_what_the_cap_cuts_off_is_poured_out_over_the_others(given, share, wanted):
    torch.testing.assert_close(capped(vector(*given), share), vector(*wanted))


def test_capped_weights_keep_their_sum_and_no_nearer_ones_do():
    for seed in range(20):
        draw = np.random.default_rng(seed)
        w = draw.dirichlet(np.full(6, 0.3))
        p = capped(torch.from_numpy(w), 0.25).numpy()
        assert p.sum() == pytest.approx(1)
        assert p.max() <= 0.25 + 1e-12
        for _ in range(50):
            other = np.minimum(draw.dirichlet(np.ones(6)), 0.25)
            if other.sum() < 1:
                other += (1 - other.sum()) * (0.25 - other) / (0.25 - other).sum()
            assert np.linalg.norm(p - w) <= np.linalg.norm(other - w) + 1e-12


def test_the_cap_acts_on_the_weights_of_the_parts_before_it():
    script = Script([AFL(order="weights_first"), Cap(share=0.6)], vector(0.0), n=[1, 1])
    found = script.play(vector(0.0, 1.0)[:, None], loss=(0.0, 50.0))
    torch.testing.assert_close(found, vector(0.6))


def test_a_cap_that_so_few_clients_cannot_keep_is_refused_before_the_first_round():
    trial = Trial(federation=unlike_clients((4, 4, 4)))
    with pytest.raises(InputError, match="'cap' needs at least 4 clients a round, and 3 are asked"):
        trial.experiment([Cap(share=0.3)])
    trial.experiment([Cap(share=1 / 3)])


# Composition


@pytest.mark.parametrize(
    "name", ["cap", "coordinate_median", "geometric_median", "multi_krum", "trimmed_mean"]
)
def test_weights_that_may_be_negative_are_refused(name):
    with pytest.raises(InputError, match=r"may be negative: use eagle\(v_min=0\)"):
        algorithm(f"eagle(v_min=None)+{name}")
    assert algorithm(f"eagle+{name}").parts


def test_weights_of_any_sum_are_a_factor_on_the_result():
    # q-FFL's weights of three clients alike are all W: the median of w D is W times that of D
    updates = matrix((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
    for part in (CoordinateMedian(), TrimmedMean(share=0.2), GeometricMedian(), MultiKrum()):
        plain, fitted = (
            Script([*parts, part], vector(0, 0), n=[1, 1, 1]).play(
                updates, loss=(2.0, 2.0, 2.0), norm2=(9.0, 9.0, 9.0)
            )
            for parts in ([], [fp.parts.QFFL(q=1.0)])
        )
        # q F^0 |g|^2 + L F = 9 + 20 a client, so 3 L F / (3 (9 + 20)) = 20 / 29
        torch.testing.assert_close(fitted, plain * 20 / 29)


def test_krum_in_front_of_a_rule_that_ignores_weights_is_refused():
    with pytest.raises(InputError, match="'fedfv' averages in its own way"):
        algorithm("multi_krum+fedfv")
    assert algorithm([MultiKrum(), FedFV(mean="given")]).parts


def test_weights_are_refused_where_krum_keeps_one():
    with pytest.raises(InputError, match="the weights of 'afl' would be ignored"):
        algorithm("afl+krum")


def test_of_two_nearest_neighbours_krum_keeps_the_one_nearer_to_all():
    # f = 1 of 4 leaves one neighbour: 0 and 1 are each other's, and 1 is nearer to the rest
    updates = vector(0.0, 1.0, 3.0, 9.0)[:, None]
    torch.testing.assert_close(step(MultiKrum(single=True), updates), vector(1.0))
    torch.testing.assert_close(step(MultiKrum(single=True), updates.flip(0)), vector(1.0))


def test_clipping_comes_before_any_rule():
    updates = matrix((1.0, 0.0), (0.0, 1.0), (0.0, 40.0))
    found = Script([CoordinateMedian(), NormClip()], vector(0, 0), n=[1, 1, 1]).play(updates)
    torch.testing.assert_close(found, vector(0.0, 1.0))


def test_recipes_have_the_settings_of_their_papers():
    assert algorithm("krum").parts == (MultiKrum(single=True),)
    assert algorithm("rfa").parts == (GeometricMedian(nu=1e-6, iterations=3),)


@pytest.mark.parametrize(
    "part", [Cap(), GeometricMedian(), MultiKrum(faulty=0.4), NormClip(), TrimmedMean()]
)
@pytest.mark.parametrize("weighting", [[], [TERM(t=2.0)], [QFFL(q=1.0)], [Varp()]])
def test_a_neutral_setting_is_no_defence_under_any_weights(part, weighting):
    """What else is told in a round is the same, so that only the rule could move the result."""
    neutral = part.neutral()
    told = {"loss": (1.0, 2.0, 0.5), "norm2": (4.0, 1.0, 9.0)}
    updates = drawn(3, 8)
    found, plain, cut = (
        Script(parts, torch.zeros(8, dtype=torch.float64)).play(updates, **told)
        for parts in ([*weighting, neutral], weighting, [*weighting, part])
    )
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)
    assert not torch.allclose(cut, plain, atol=1e-6)
