"""The concordance index, against a count over all pairs by hand."""

import math

import numpy as np
import pytest

from fedparity.metrics.concordance import c_index


def test_pairs_whose_order_is_known_are_counted():
    # times 1 (event), 2 (lost), 3 (event), 4 (lost)
    target = np.array([[1, 1], [2, 0], [3, 1], [4, 0]], float)
    # known: 1 before 2, 3, 4; 3 before 4. Told: 5 > 4 wrong, 5 < 6 right, 5 = 5 half, 6 > 5 wrong.
    assert c_index(target, np.array([5.0, 4, 6, 5])) == pytest.approx(1.5 / 4)


def test_at_the_same_time_an_event_is_before_a_loss_from_sight():
    target = np.array([[2, 1], [2, 0], [2, 1]], float)
    assert c_index(target, np.array([1.0, 2, 1])) == 1


def test_without_a_known_pair_there_is_no_index():
    assert math.isnan(c_index(np.array([[1, 0], [2, 1]], float), np.array([1.0, 2])))
