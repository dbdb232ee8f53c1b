"""The drill of intervals and verdicts, small."""

import numpy as np
import pytest

import certainty


@pytest.fixture(scope="module")
def found():
    return certainty.drill(16, seed=1)


def test_intervals_of_clients_with_enough_examples_cover(found):
    rows = found.clients[found.clients["n"] >= certainty.FEW]
    # about 230 intervals: four standard errors of a share of 0.94 are 0.063
    share = certainty.covers(rows).mean()
    assert share > 0.94 - 0.063
    # intervals that are too wide never miss; at 98 %, all of 230 have a probability of 0.01
    assert share < 1


def test_verdicts_find_a_third_of_the_gaps_of_large_clients(found):
    rows = found.clients[(found.clients["n"] >= 100) & (found.clients["true"] != 0)]
    right = np.where(rows["true"] < 0, certainty.GAINS, certainty.PAYS) == rows["verdict"]
    assert len(rows) > 40
    assert right.mean() > 1 / 3


def test_hardly_a_federation_has_a_false_gain(found):
    # at 5 %, six or more of 16 have a probability below 0.0002
    assert found.federations["false gains"].sum() < 6
    assert found.federations["false pays"].sum() < 6


def test_the_true_gap_is_what_many_examples_show():
    draws = np.random.default_rng(0)
    for loss, spread in ((0.3, 0.5), (0.8, 3.0)):
        margins = certainty.centre(loss, spread) + spread * draws.standard_normal(400_000)
        assert certainty.loss_of(margins).mean() == pytest.approx(loss, abs=0.01)


def test_levelling_down_is_hardly_ever_called_wrongly():
    words = certainty.levelling(8, seed=1)
    assert words.sum(axis=1).tolist() == pytest.approx([1, 1, 1])
    down, *others = words.index
    # at 5 %, three or more of 8 have a probability of 0.006
    assert words.loc[down, "holds"] < 3 / 8
    assert (words.loc[others, "broken"] < 3 / 8).all()
    assert words.loc[others[0], "holds"] > 1 / 3
