"""A transformer of one's own prepares columns: through a file, a resume and predictions."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from messy import together
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import fedparity as fp
from fedparity.cli import main
from fedparity.data import Preparation
from fedparity.errors import InputError
from fedparity.imports import Allowed

MODULE = '''
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

COUNT = [0]


def scaled(times=1.0):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer((numbers, ["age", "dose"]))


class Bare:
    """No base class, no names of what it makes."""

    def __init__(self, power=1):
        self.power = power

    def fit(self, X, y=None):
        self.mean = X["age"].mean()
        return self

    def transform(self, X):
        return ((X[["age"]].fillna(self.mean) - self.mean) / 10).to_numpy() ** self.power


class Moody(Bare):
    def fit(self, X, y=None):
        COUNT[0] += 1
        self.mean = COUNT[0]
        return self


class Wordy(Bare):
    def transform(self, X):
        return X[["sex"]].to_numpy()


def nothing():
    return 3
'''
USUAL = {"rounds": 2, "lstar": "none", "solver": fp.Solver(lr=0.1)}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Return a table's file, beside which there is a package of the user's."""
    (tmp_path / "columns_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    together().to_csv(tmp_path / "t.csv", index=False)
    yield tmp_path / "t.csv"
    sys.modules.pop("columns_of_mine", None)


def dealt(table, prepare):
    return fp.Federation.from_frame(table, "hospital", "disease", prepare=prepare)


@pytest.mark.parametrize("code", ["scaled(times=2)", "Bare(power=2)"])
def test_a_transformer_named_by_import_path_goes_through_resume_and_predict(mine, tmp_path, code):
    federation = dealt(mine, f"columns_of_mine:{code}")
    rows = federation.train.x.double()
    if code.startswith("scaled"):
        assert rows.mean(0).numpy() == pytest.approx([0, 0], abs=1e-6)
        assert rows.std(0, correction=0).numpy() == pytest.approx([1, 1], abs=1e-6)
    experiment = fp.Experiment(federation, "linear", **USUAL)
    assert f"columns_of_mine:{code.split('(')[0]}" in experiment.foreign
    done = experiment.run(tmp_path / "run")
    new = together().head(7).drop(columns=["disease", "hospital"])
    said = done.predict_proba(new)
    again = fp.Result.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.predict_proba(new, allow_import="columns_of_mine"), said)
    with pytest.raises(InputError, match=r"the preparation is code.*add --allow-import columns_of"):
        fp.Result.load(tmp_path / "run").predict(new)
    with pytest.raises(InputError, match="the preparation is code"):
        fp.resume(tmp_path / "run", rounds=3)
    assert fp.resume(tmp_path / "run", rounds=3, allow_import="columns_of_mine").rounds == 3
    straight = fp.Experiment(federation, "linear", **{**USUAL, "rounds": 3}).run()
    resumed = fp.Result.load(tmp_path / "run").clients
    pd.testing.assert_frame_equal(resumed, straight.clients)


def test_what_is_written_is_the_path_and_numbers(mine, tmp_path):
    made = dealt(mine, "columns_of_mine:scaled")
    page = json.loads(made.preparation.text())
    assert page["code"] == "columns_of_mine:scaled(times=1.0)"
    assert page["reads"] == ["age", "smoker", "sex", "dose"]
    assert page["means"] == pytest.approx([0, 0], abs=1e-9)
    made.preparation.save(tmp_path / "preparation.json")
    with pytest.raises(InputError, match="prepared by code, 'columns_of_mine:scaled"):
        Preparation.load(tmp_path).apply(together())


def test_a_fit_that_differs_is_told(mine, tmp_path):
    fp.Experiment(dealt(mine, "columns_of_mine:Moody"), "linear", **USUAL).run(tmp_path / "run")
    read = fp.Result.load(tmp_path / "run")
    with pytest.raises(InputError, match=r"'columns_of_mine:Moody\(power=1\)' does not do again"):
        read.predict(together(), allow_import="columns_of_mine")


def test_an_object_serves_in_its_program(mine, tmp_path):
    log = make_pipeline(SimpleImputer(), FunctionTransformer(np.log))
    federation = dealt(mine, make_column_transformer((log, ["dose", "age"])))
    experiment = fp.Experiment(federation, "linear", **USUAL)
    said = experiment.run(tmp_path / "run").predict(together())
    read = fp.Result.load(tmp_path / "run")
    np.testing.assert_array_equal(
        read.predict(together(), preparation=federation.preparation), said
    )
    with pytest.raises(InputError, match="is known only to the program that made it"):
        read.predict(together())
    assert fp.resume(tmp_path / "run", rounds=3, federation=federation).rounds == 3


def test_the_command_line_runs_predicts_and_exports_with_it(mine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--client", "hospital", "--target", "disease", "--prepare", "columns_of_mine:scaled"]
    learnt = ["--model", "linear", "--rounds", "1", "--lstar", "none", "--out", "one"]
    allowed = ["--allow-import", "columns_of_mine"]
    for command in (
        ["check", str(mine), *given],
        ["run", "--data", str(mine), *given, *learnt],
        ["resume", "one", "--rounds", "2", *allowed],
        ["predict", "one", str(mine), "--out", "said.csv", *allowed],
        ["export", "one", "--pt2", "one.pt2", *allowed],
    ):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 0, capsys.readouterr().err
    said = pd.read_csv("said.csv")
    told = fp.Result.load("one").predict(pd.read_csv(mine), allow_import="columns_of_mine")
    assert said["prediction"].tolist() == told.tolist()
    with pytest.raises(SystemExit) as end:
        main(["predict", "one", str(mine)])
    assert end.value.code == 2
    assert "add --allow-import columns_of_mine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        ("columns_of_mine:Wordy", "the transformer returns "),
        ("columns_of_mine:nothing", "'columns_of_mine:nothing' made a int: it needs fit and tr"),
        ("columns_of_mine:scaled(time=1)", "unknown setting of columns_of_mine:scaled 'time'"),
        ("columns_of_mine:COUNT", "'columns_of_mine:COUNT' is not a preparation factory"),
        ("os:system", "names code of Python's own library"),
        ("absent_of_mine:it", "cannot import the preparation 'absent_of_mine:it'"),
    ],
)
def test_what_is_no_transformer_is_one_line(mine, prepare, told):
    with pytest.raises(InputError) as refused:
        dealt(mine, prepare)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_recipe_runs_no_code_that_nobody_allowed(mine):
    recipe = dealt(mine, "columns_of_mine:scaled").recipe
    with pytest.raises(InputError, match="a file alone does not make it run"):
        fp.data.rebuild(recipe)
    again = fp.data.rebuild(recipe, allowed=Allowed.by("columns_of_mine"))
    assert again.preparation.own.code == recipe["prepare"]


def test_dates_are_left_to_a_transformer_that_says_it_reads_them(mine):
    table = pd.read_csv(mine).assign(seen="2020-01-31")
    made = dealt(table, "columns_of_mine:Bare")
    assert any("column 'seen' holds dates" in str(finding) for finding in made.findings)
