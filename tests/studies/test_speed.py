"""Rounds to a target over seeds: by hand, and said where it is not reached."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedparity as fp
from fedparity.figures import Labelled
from fedparity.studies.speed import reaching

CURVES = {  # the accuracy after rounds 2, 4, 6, seed by seed
    "base": [[0.1, 0.2, 0.8], [0.1, 0.7, 0.8], [0.2, 0.3, 0.9]],  # 6, 4, 6
    "fast": [[0.6, 0.7, 0.8], [0.7, 0.4, 0.7], [0.1, 0.6, 0.9]],  # 2, 2, 4
    "some": [[0.6, 0.7, 0.8], [0.1, 0.1, 0.1], [0.6, 0.7, 0.8]],
    "never": [[0.1, 0.1, 0.1]] * 3,
}


def run(label, seed, curve):
    rows = [
        (2 * (place + 1), client, "test", "global", metric, sign * value + shift, 5)
        for place, value in enumerate(curve)
        for client, shift in (("a", -0.05), ("b", 0.05))
        for metric, sign in (("accuracy", 1), ("loss", -1))
    ]
    names = ["round", "client", "split", "model", "metric", "value", "n"]
    clients = pd.DataFrame({"client": ["a", "b"]})
    made = fp.Result(clients, pd.DataFrame(rows, columns=names), {"seed": seed}, rounds=6)
    return Labelled(label, str(seed), made)


RUNS = [run(label, s, c) for label, curves in CURVES.items() for s, c in enumerate(curves)]


def test_rounds_and_speed_up_have_means_and_intervals_over_seeds():
    found = reaching(RUNS, 0.5, reference="base").set_index("algorithm")
    assert found.loc["base", "rounds"] == pytest.approx(16 / 3)
    assert found.loc["fast", "rounds"] == pytest.approx(8 / 3)
    ratios = np.array([6 / 2, 4 / 2, 6 / 4])
    assert found.loc["fast", "speed_up"] == pytest.approx(ratios.mean())
    half = stats.t.ppf(0.975, 2) * ratios.std(ddof=1) / math.sqrt(3)
    assert found.loc["fast", "speed_up_high"] == pytest.approx(ratios.mean() + half)
    assert found.loc["base", "speed_up"] == 1


def test_a_target_that_is_not_reached_is_said_and_has_no_mean():
    found = reaching(RUNS, 0.5, reference="base").set_index("algorithm")
    assert found["note"].to_dict() == {
        "base": "",
        "fast": "",
        "some": "not reached on 1 of 3 seeds",
        "never": "not reached",
    }
    assert found.loc[["some", "never"], ["rounds", "speed_up"]].isna().all(axis=None)


def test_losses_come_down_and_the_worst_client_and_staying_count():
    assert reaching(RUNS, -0.5, metric="loss")["rounds"].dropna().tolist() == pytest.approx(
        [16 / 3, 8 / 3]
    )
    worst = reaching(RUNS, 0.58, over="worst").set_index("algorithm")
    assert worst.loc["base", "rounds"] == pytest.approx(16 / 3)
    assert worst.loc["fast", "rounds"] == pytest.approx((4 + 2 + 6) / 3)
    staying = reaching(RUNS, 0.5, stay=2).set_index("algorithm")
    assert staying.loc["fast", "note"] == "not reached on 1 of 3 seeds"  # 0.7, 0.4, 0.7


def test_a_wrong_reference_is_told():
    with pytest.raises(fp.InputError, match="did you mean 'base'"):
        reaching(RUNS, 0.5, reference="bas")
