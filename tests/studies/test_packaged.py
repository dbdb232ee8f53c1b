"""The papers' tables as files: every packaged one is sound, and a wrong one is told by its line."""

from __future__ import annotations

import json
import re
import warnings

import pytest

import fedparity as fp
from fedparity.engines.engine import intraop
from fedparity.run.file import experiment
from fedparity.studies.packaged import listed, packaged, read

FILE = """\
title: t
protocol: p
study:
  data: synthetic(clients=3)
  model: linear
  rounds: 2
  algorithms: {A: fedavg, B: qffl(q=2)}
  grid: {solver.lr: [0.1, 0.5]}
columns:
  mean: mean_accuracy
  late: {of: mean_accuracy, last: 2}
published:
- {what: x, column: mean, values: {"A, lr 0.1": 1.0}}
"""
WRONG = {
    "titel: x": "line 14: unknown setting of a packaged study 'titel': did you mean 'title'",
    "quick: {roundz: 3}": "line 14: unknown setting of a study 'roundz': did you mean 'rounds'",
    "quick:\n  solver: {lrr: 3}": "line 15: .*did you mean 'solver.lr'",
    "claims:\n- {what: x, column: meen, lower: A, higher: B}": "line 15: .*did you mean 'mean'",
    "claims:\n- {what: x, column: mean, lower: A, higher: C}": "line 15: unknown row 'C'",
    "claims:\n- {what: x, column: mean, lower: A}": "line 15: an entry of 'claims' has no 'higher'",
    "claims:\n- {wat: x}": "line 15: unknown setting of 'claims' 'wat': did you mean 'what'",
    "names: {solver.lr: [low]}": "line 14: 'solver.lr' has 2 values and other numbers of names",
    "names: {solver.lrr: [low]}": "line 14: unknown key of the grid 'solver.lrr'",
    "repeats: [model]": "line 14: unknown key of the grid 'model'",
    "choose: {key: solver.lr, by: meen}": "line 14: unknown column 'meen': did you mean 'mean'",
}
COLUMNS = {
    "mean_accuracyy": "line 11: .*unknown summary of a column .*did you mean 'mean_accuracy'",
    "{of: mean_accuracy, lats: 2}": "line 11: unknown setting of column 'lats': .*'last'",
    "{of: mean_accuracy, last: 0}": "line 11: column: last should be greater",
    "{of: mean_accuracy, last: 2, at: 1}": "line 11: .*one of last and at, not both",
    "{of: gains, last: 2}": "line 11: .*a column of 'gains' has no 'last'",
    "{of: clients, last: 2}": "line 11: .*'clients' is not known at every evaluation",
    "{of: told}": "line 11: .*a column of 'told' names a part's number",
    "{of: mcnemar}": "line 11: .*a column of 'mcnemar' names an algorithm",
    "{of: mcnemar, against: C}": "line 11: unknown algorithm 'C'",
    "{of: client_accuracy}": "line 11: .*a column of 'client_accuracy' names a client",
    "3": "line 11: a column is a summary or a table of settings, got 3",
}


@pytest.mark.parametrize("name", listed())
def test_a_packaged_study_is_sound_and_its_orders_are_of_its_rows(name):
    table = packaged(name)
    study = table.planned("unused")
    rows = {label + place for label in study.algorithms for place in table.places(study.grid)}
    assert {
        row for order in table.orders(study) for row in (order["lower"], order["higher"])
    } <= rows
    assert table.published or table.missing
    assert json.dumps([dict(entry) for entry in (*table.published, *table.claims)])
    quick = table.planned("unused", quick=True)
    assert (study.name, quick.name) == (name, f"{name}-quick")  # which may share a directory
    assert 0 < len(quick.runs) <= len(study.runs)


def test_every_algorithm_of_the_packaged_studies_can_be_built():
    federation = fp.datasets.synthetic(clients=6).split("natural")
    solver = {"lr": 0.1, "steps": 2, "batch": 5}
    built = set()
    with intraop(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings that do not train, which papers print
        for name in listed():
            told = packaged(name).settings()
            kept = {key: told[key] for key in ("weighting", "lstar") if key in told}
            cohort = {"cohort": 3} if told.get("cohort") else {}
            for text in set(told["algorithms"].values()) - built:
                more = {"algorithm": text, "solver": solver, **kept, **cohort}
                experiment({"model": "mlp(hidden=4, layers=4)", **more}, federation=federation)
                built.add(text)
    assert len(built) > 100


@pytest.mark.parametrize("more", WRONG)
def test_what_is_wrong_in_a_table_is_told_with_its_line(more, tmp_path):
    (tmp_path / "t.yaml").write_text(f"{FILE}{more}\n")
    with pytest.raises(fp.InputError) as told:
        read(tmp_path / "t.yaml")
    assert re.search(WRONG[more], str(told.value)), told.value


@pytest.mark.parametrize("column", COLUMNS)
def test_what_is_wrong_with_a_column_is_told_with_its_line(column, tmp_path):
    (tmp_path / "t.yaml").write_text(FILE.replace("{of: mean_accuracy, last: 2}", column))
    with pytest.raises(fp.InputError) as told:
        read(tmp_path / "t.yaml")
    assert re.search(COLUMNS[column], str(told.value)), told.value


def test_a_table_needs_its_keys_and_says_why_it_has_no_numbers(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text(FILE.replace("title: t\n", ""))
    with pytest.raises(fp.InputError, match="has no 'title'"):
        read(file)
    file.write_text(FILE[: FILE.index("published")])
    with pytest.raises(fp.InputError, match="no published numbers: say under 'missing' why"):
        read(file)
    file.write_text(FILE)
    assert [each["by"] for each in read(file).orders(read(file).planned("unused"))] == []


def test_a_claim_of_labels_is_made_at_every_place_of_the_grid(tmp_path):
    claim = "claims:\n- {what: x, column: mean, lower: A, higher: B, by: 2}\n"
    (tmp_path / "t.yaml").write_text(
        f"{FILE}names: {{solver.lr: [low, high]}}\n{claim}".replace("A, lr 0.1", "A, low")
    )
    table = read(tmp_path / "t.yaml")
    orders = list(table.orders(table.planned("unused")))
    assert [(each["lower"], each["higher"]) for each in orders] == [
        ("A, low", "B, low"),
        ("A, high", "B, high"),
    ]


def test_a_wrong_name_is_told_with_the_nearest():
    with pytest.raises(fp.InputError, match="did you mean 'fedfv3'"):
        packaged("fedfv33")
