"""The sentence of an aim: a small strict grammar."""

from __future__ import annotations

import math

import pytest

from fedparity.errors import InputError
from fedparity.metrics import SUMMARIES
from fedparity.tuning.aim import read


def test_every_condition_is_read():
    aim = read(
        "lowest gap variance with accuracy within 0.5 points of fedavg and worst_accuracy >= 70 "
        "and max_gap within 1e-1 of eagle(lam=2)+prox(mu=0.1)",
        SUMMARIES,
    )
    assert (aim.summary, aim.better) == ("gap_variance", "lower")
    assert [(c.summary, c.number, c.of) for c in aim.conditions] == [
        ("mean_accuracy", 0.5, "fedavg"),
        ("worst_accuracy", 70, None),
        ("max_gap", 0.1, "eagle(lam=2)+prox(mu=0.1)"),
    ]
    assert aim.references == ("fedavg", "eagle(lam=2)+prox(mu=0.1)")


def test_a_condition_is_missed_by_what_lies_beyond_it():
    accuracy, loss = read(
        "highest worst_accuracy with accuracy within 0.5 of fedavg and loss <= 0.3", SUMMARIES
    ).conditions
    known = {"fedavg": {"mean_accuracy": 80.0}}
    assert accuracy.excess({"mean_accuracy": 79.5}, known) == 0  # 80 - 0.5 - 79.5
    assert accuracy.excess({"mean_accuracy": 79.0}, known) == 0.5
    assert accuracy.excess({"mean_accuracy": 90.0}, known) < 0
    assert loss.excess({"mean_loss": 0.5}, known) == pytest.approx(0.2)
    assert loss.excess({"mean_loss": math.nan}, known) == math.inf


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gap_variance", "cannot read the aim"),
        ("lowest gap_varianse", "did you mean 'gap_variance'"),
        ("highest gap_variance", "write 'lowest gap_variance'"),
        ("lowest clients", "only counted"),
        ("lowest loss with", "unknown summary 'loss_with'"),
        ("lowest loss with accuracy near fedavg", "cannot read the condition"),
        ("lowest loss with accuracy <= 70", "turn '<=' round"),
        ("lowest loss with accuracy within -1 of fedavg", "at least 0"),
        ("lowest loss; import os", "cannot read the aim"),
        ("lowest " + "x" * 2000, "at most 1000"),
    ],
)
def test_what_is_no_aim_is_told(text, told):
    with pytest.raises(InputError, match=told):
        read(text, SUMMARIES)
