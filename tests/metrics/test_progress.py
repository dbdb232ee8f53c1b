"""Rounds to a target, bytes, gradient norms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedparity import metrics
from fedparity.errors import InputError

CURVE = [10, 60, 40, 55, 70]


def test_rounds_are_counted_from_one():
    assert metrics.rounds_to_target(CURVE, 10) == 1
    assert metrics.rounds_to_target(CURVE, 60) == 2


def test_a_target_never_reached_is_none():
    assert metrics.rounds_to_target(CURVE, 71) is None
    assert metrics.rounds_to_target([], 0) is None
    assert metrics.rounds_to_target([math.nan], 0) is None


def test_staying_above_ignores_a_peak():
    assert metrics.rounds_to_target(CURVE, 50, stay=2) == 4
    assert metrics.rounds_to_target(CURVE, 50, stay=3) is None
    with pytest.raises(InputError, match="stay"):
        metrics.rounds_to_target(CURVE, 50, stay=0)


def test_the_answer_is_on_the_grid_of_evaluations():
    assert metrics.rounds_to_target([1, 2, 3], 2, rounds=[10, 20, 30]) == 20
    with pytest.raises(InputError, match="rounds"):
        metrics.rounds_to_target([1, 2, 3], 2, rounds=[10])


def test_a_loss_reaches_its_target_from_above():
    assert metrics.rounds_to_target([0.9, 0.5, 0.4], 0.5, better="lower") == 2


def test_speed_up_is_over_the_baseline():
    assert metrics.speed_up(100, 50) == 2
    assert metrics.speed_up(100, None) == 0
    assert metrics.speed_up(None, 50) == math.inf
    assert math.isnan(metrics.speed_up(None, None))


def test_a_float_is_four_bytes():
    # two rounds of FedAvg: 3 participants, 10 parameters
    sent = metrics.communication([30, 30], [30, 30], [1, 1])
    assert sent == metrics.Communication(bytes_up=240, bytes_down=240, synchronisations=2)
    assert sent.bytes == 480
    assert metrics.communication([30], [30], [1], float_bytes=8).bytes == 480


def test_bytes_add_up_over_the_rounds():
    assert metrics.cumulative_bytes([1, 2], [10, 20]).tolist() == [44, 132]


def test_bytes_of_a_long_run_do_not_overflow():
    # 2000 rounds of 100 participants with 25 million parameters
    floats = [2_500_000_000] * 2000
    assert metrics.communication(floats, floats, [1] * 2000).bytes == 4 * 10**13
    assert metrics.cumulative_bytes(floats, floats)[-1] == 4 * 10**13


def test_gradient_norms_are_per_layer_and_over_clients():
    gradients = np.array([[3.0, 4.0, 1.0], [0.0, 0.0, -3.0]])
    table = metrics.gradient_norms(gradients, {"hidden": 2, "out": 1})
    assert table.index.tolist() == ["hidden", "out"]
    # hidden: norms 5 and 0; out: norms 1 and 3
    assert table["mean"].tolist() == [2.5, 2.0]
    assert table["variance"].tolist() == [6.25, 1.0]
    assert table["max"].tolist() == [5.0, 3.0]


def test_gradients_that_do_not_fit_the_layers_are_refused():
    with pytest.raises(InputError, match=r"\[clients, 3\]"):
        metrics.gradient_norms(np.ones((2, 4)), {"hidden": 2, "out": 1})
    with pytest.raises(InputError, match=r"\[clients, 3\]"):
        metrics.gradient_norms(np.ones((0, 3)), {"hidden": 2, "out": 1})
