"""The papers' tables as studies."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

import fedparity as fp
from fedparity.metrics import SUMMARIES
from fedparity.studies.packaged import OVER_CLIENTS, Packaged, listed, packaged


@pytest.mark.parametrize("name", listed())
@pytest.mark.parametrize("quick", [False, True])
def test_a_packaged_study_is_sound_and_says_of_which_algorithms_numbers_are(name, quick):
    table = packaged(name)
    study = table.planned("unused", quick)
    assert {column for column, *_ in table.orders()} <= set(table.columns)
    assert {label for _, *pair in table.orders() for label in pair} <= set(study.algorithms)
    assert set(table.columns.values()) <= set(OVER_CLIENTS if table.last else SUMMARIES)
    assert len(list(table.orders()))


TABLE = Packaged(
    "t",
    "title",
    "protocol",
    {
        "data": "synthetic(clients=3)",
        "model": "linear",
        "rounds": 2,
        "lstar": "none",
        "evaluate_every": 1,
        "algorithms": {"A": "fedavg", "B": "qffl(q=2)"},
        "seeds": 2,
    },
    {"mean": "mean_accuracy", "std": "accuracy_std"},
    {"seeds": 1},
    ({"what": "x", "column": "mean", "values": {"A": 1.0, "B": 2.0}},),
)


def numbers(monkeypatch, rows):
    """A table whose runs have the numbers given."""
    frame = pd.DataFrame(rows, columns=["algorithm", "seed", "mean", "std"])
    monkeypatch.setattr(Packaged, "numbers", lambda self, study: frame)
    return TABLE.planned("unused")


def test_ours_stand_beside_what_was_published(monkeypatch):
    study = numbers(monkeypatch, [["A", 0, 3, 1], ["A", 1, 5, 1], ["B", 0, 4, 1]])
    beside = TABLE.beside(study).set_index("algorithm")
    assert list(beside["mean"]) == [4.0, 4.0]
    assert list(beside["mean, published"]) == [1.0, 2.0]
    assert list(beside["seeds"]) == [2, 1]
    assert list(beside["of"]) == [2, 2]
    assert "std, published" not in beside


def test_an_order_holds_on_the_seeds_that_both_have(monkeypatch):
    study = numbers(monkeypatch, [["A", 0, 3, 1], ["A", 1, 5, 1], ["B", 0, 4, 1], ["B", 1, 4, 1]])
    (row,) = TABLE.holding(study).to_dict("records")
    assert (row["lower"], row["higher"], row["seeds"], row["holds on"]) == ("A", "B", 2, 1)
    assert not row["in the mean"]  # 4 < 4


@pytest.mark.parametrize("last", [0, 1])
def test_numbers_are_those_of_the_runs(tmp_path, last):
    made = fp.Experiment(
        fp.datasets.digits().split("iid", clients=3),
        "linear",
        rounds=2,
        lstar="none",
        evaluate_every=1,
    ).run()
    found = replace(TABLE, last=last)._of(made)
    assert found["mean"] == pytest.approx(made.summary()["mean_accuracy"])
    assert found["std"] == pytest.approx(made.summary()["accuracy_std"])


def test_published_numbers_are_data():
    assert json.dumps(packaged("fedfv3").published)
    with pytest.raises(fp.InputError, match="did you mean 'fedfv3'"):
        packaged("fedfv33")
