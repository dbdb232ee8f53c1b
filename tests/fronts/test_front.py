"""Fronts: what no other setting beats in both summaries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedparity as fp
from fedparity.errors import InputError
from fedparity.fronts.plane import hypervolume, knee, non_dominated

POINTS = np.random.default_rng(0).random((40, 2))


def result(accuracies, gaps, seed=0, **record) -> fp.Result:
    """Return a result with these numbers on validation, L* 1 for all."""
    n = len(gaps)
    clients = pd.DataFrame(
        {
            "client": [f"c{k}" for k in range(n)],
            **{f"n_{split}": [10] * n for split in ("train", "validation", "test")},
            "validation_accuracy": accuracies,
            "validation_loss": 1 + np.asarray(gaps, dtype=float),
            "validation_lstar": 1.0,
            "validation_gap": gaps,
        }
    )
    return fp.Result(clients, pd.DataFrame(), {"seed": seed, "record": record}, rounds=1)


def runs(**gaps) -> dict[str, list[fp.Result]]:
    """Return two seeds of each setting, of accuracies and gaps of two clients."""
    return {name: [result(acc, gap, 0), result(acc, gap, 1)] for name, (acc, gap) in gaps.items()}


FRONT = {
    "fedavg": ([0.9, 0.9], [0.0, 1.0]),  # accuracy 90, gap variance 0.5
    "middle": ([0.89, 0.89], [0.3, 0.5]),  # 89, 0.02
    "worse": ([0.85, 0.85], [0.2, 0.6]),  # 85, 0.08: middle is better in both
    "even": ([0.7, 0.7], [0.4, 0.4]),  # 70, 0
}


def test_non_dominated_points_are_those_that_no_pair_says_otherwise_of():
    slow = [not any((q <= p).all() and (q < p).any() for q in POINTS) for p in POINTS]
    assert non_dominated(POINTS).tolist() == slow
    assert 1 < sum(slow) < 40


def test_the_hypervolume_is_the_share_of_a_grid_that_is_covered():
    grid = (np.stack(np.meshgrid(np.arange(400), np.arange(400)), -1).reshape(-1, 2) + 0.5) / 400
    covered = (POINTS[:, None] <= grid[None]).all(axis=2).any(axis=0).mean()
    assert hypervolume(POINTS, np.ones(2)) == pytest.approx(covered, abs=0.01)


def test_the_front_is_told_with_intervals_and_a_reason():
    found = fp.frontier(runs(**FRONT))
    table = found.table.set_index("setting")
    assert table["front"].to_dict() == {
        "fedavg": True,
        "middle": True,
        "worse": False,
        "even": True,
    }
    assert table.loc["middle", "mean_accuracy"] == pytest.approx(89)
    assert table.loc["middle", "gap_variance"] == pytest.approx(0.02)
    assert np.isnan(table.loc["middle", "mean_accuracy_low"])  # the same on both seeds
    assert "all seeds alike" in found.reason
    assert found.recommended == "middle"
    assert "Take 'middle'" in found.reason
    assert found.corner == pytest.approx((70, 0.5))
    # fedavg adds 20 x 0, middle 19 x 0.48
    assert found.hypervolume == pytest.approx(9.12)


def test_who_levels_down_is_marked_and_not_recommended():
    harmed = {**FRONT, "middle": ([0.89, 0.89], [0.9, 1.0])}  # closer, but nobody is better off
    found = fp.frontier(runs(**harmed))
    table = found.table.set_index("setting")
    assert table["levelling_down"].to_dict() == {
        "fedavg": False,
        "middle": True,
        "worse": False,
        "even": False,
    }
    assert found.recommended != "middle"
    assert "1 of which level down" in found.reason


def test_intervals_are_over_seeds():
    noisy = runs(**FRONT)
    noisy["middle"][1] = result([0.91, 0.91], [0.3, 0.5], 1)
    row = fp.frontier(noisy).table.set_index("setting").loc["middle"]
    # mean 90, deviation sqrt(2), over two seeds: 90 +- 12.706 * 1
    assert row["mean_accuracy_low"] == pytest.approx(90 - 12.706, abs=1e-3)


def test_a_knee_is_where_both_ends_are_near():
    assert knee(np.array([[0.0, 10.0], [50.0, 1.0], [100.0, 0.0]])) == 1
    # further below the line from (0, 10) to (100, 0): 4 of 10 against 3 of 10
    assert knee(np.array([[0.0, 10.0], [20.0, 4.0], [60.0, 1.0], [100.0, 0.0]])) == 1
    assert knee(np.array([[3.0, 2.0]])) == 0


@pytest.mark.parametrize("middle", [[], [[50.0, 9.0]], [[50.0, 5.0]]])
def test_a_front_with_nothing_below_the_line_of_its_ends_has_no_knee(middle):
    assert knee(np.array([[0.0, 10.0], *middle, [100.0, 0.0]])) is None


def test_of_two_ends_neither_is_recommended():
    found = fp.frontier(runs(**{name: FRONT[name] for name in ("fedavg", "even")}))
    assert found.recommended is None
    assert "choose by what matters more" in found.reason
    assert "90 ('fedavg')" in found.reason
    assert "0 ('even')" in found.reason


def told_of_levelling(given, **more) -> tuple[list, str]:
    found = fp.frontier(given, **more)
    return found.table["levelling_down"].tolist(), found.reason


def test_without_a_reference_levelling_down_is_not_judged_and_that_is_said():
    given = {"plain" if name == "fedavg" else name: r for name, r in runs(**FRONT).items()}
    levels, reason = told_of_levelling(given)
    assert levels == [None] * 4
    assert "Levelling down was not judged: no setting is fedavg" in reason
    assert told_of_levelling(given, reference="plain")[0] == [False] * 4


def test_the_reference_is_found_by_what_its_runs_are():
    given = {"plain" if name == "fedavg" else name: r for name, r in runs(**FRONT).items()}
    for each in given["plain"]:
        each.settings["algorithm"] = "fedavg"
    assert told_of_levelling(given)[0] == [False] * 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: setattr(r, "rounds", 2), "judged at the same round budget"),
        (lambda r: r.settings["record"].update(weights="uniform"), "judged under the same weights"),
    ],
)
def test_runs_that_cannot_be_compared_leave_levelling_down_open(change, told):
    given = runs(**FRONT)
    for each in given["fedavg"]:
        each.settings["record"]["weights"] = "size"
    for each in given["middle"]:
        change(each)
    levels, reason = told_of_levelling(given)
    assert levels == [None] * 4
    assert told in reason


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: {"fedavg": r["fedavg"]}, "at least two settings"),
        (lambda r: {**r, "even": r["even"][:1]}, "same seeds"),
        (lambda r: {**r, "even": r["even"][::-1]}, "in their order"),
        (
            lambda r: {**r, "even": [result([1, 1], [0, 0], s, diverged="x") for s in (0, 1)]},
            "leave",
        ),
        (lambda r: {**r, "even": [result([1], [0], s) for s in (0, 1)]}, "no finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        fp.frontier(change(runs(**FRONT)))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"across": ("accuracy", "gap_variance")}, "unknown summary"),
        ({"across": ("mean_gap", "mean_gap")}, "two different"),
        ({"across": ("clients", "gap_variance")}, "only counted"),
        ({"reference": "fedag"}, "did you mean 'fedavg'"),
    ],
)
def test_wrong_names_are_told(more, told):
    with pytest.raises(InputError, match=told):
        fp.frontier(runs(**FRONT), **more)
