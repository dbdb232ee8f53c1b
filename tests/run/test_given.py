"""L* that is given: numbers, a column or a file in place of a rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import fedparity as fp
from fedparity.errors import InputError
from fedparity.records.rundir import RunDir
from fedparity.run import describing, file, given
from fedparity.run.experiment import Experiment

NUMBERS = [0.4, 0.3, 0.2, 0.1]
BY_NAME = dict(zip("0123", NUMBERS, strict=True))


def experiment(federation, lstar, algorithm="fedavg", **more) -> Experiment:
    return Experiment(federation, "linear", algorithm, **{"rounds": 2, "lstar": lstar, **more})


@pytest.mark.parametrize(
    "value",
    [
        NUMBERS,
        tuple(NUMBERS),
        np.array(NUMBERS),
        pd.Series(NUMBERS, index=list("0123")),
        pd.Series(NUMBERS[::-1], index=list("3210")),
        pd.Series(NUMBERS, index=[0, 1, 2, 3]),
        BY_NAME,
        {int(name): value for name, value in BY_NAME.items()},
        pd.DataFrame({"lstar": NUMBERS}, index=list("0123")),
        pd.DataFrame({"client": list("3210"), "lstar": NUMBERS[::-1]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_by_client_stand_for_every_split(unlike, value):
    clients = experiment(unlike, value).run().clients
    # the third client has neither validation nor test examples
    np.testing.assert_array_equal(clients["test_lstar"], [0.4, 0.3, np.nan, 0.1])
    np.testing.assert_array_equal(clients["validation_lstar"], [0.4, 0.3, np.nan, 0.1])
    np.testing.assert_array_equal(clients["test_gap"], clients["test_loss"] - clients["test_lstar"])
    assert not clients["lstar_capped"].any()


def test_a_series_without_names_is_in_the_order_of_the_clients():
    federation = fp.Federation.from_arrays(np.eye(4), [0, 1, 0, 1], ["a", "b", "a", "b"])
    found = given.given(pd.Series([0.4, 0.3]), federation)
    assert found["train"].tolist() == [0.4, 0.3]


def test_numbers_of_a_split_stand_for_that_split(unlike):
    table = pd.DataFrame({"validation": NUMBERS, "test": [1.0, 2.0, 3.0, 4.0]}, index=list("0123"))
    clients = experiment(unlike, table).run().clients
    assert clients["validation_lstar"][0] == 0.4
    assert clients["test_lstar"][0] == 1.0
    only = experiment(unlike, table[["validation"]]).run()
    assert only.clients["test_lstar"].isna().all()
    assert only.summary()["clients_without_lstar"] == 3


def test_the_client_without_validation_examples_is_taken_at_its_training_number(unlike):
    made = experiment(unlike, BY_NAME, "eagle(lam=0.1)", dtype="float64")
    assert made.given["train"][2] == 0.2
    made.run()
    table = pd.DataFrame({"validation": NUMBERS}, index=list("0123"))
    with pytest.raises(InputError, match=r"'eagle.*' needs L\* .* no such number for client '2'"):
        experiment(unlike, table, "eagle(lam=0.1)")


def test_a_column_of_the_federation_is_taken(unlike):
    frame = pd.DataFrame({"a": np.arange(8.0), "site": list("xxxxyyyy"), "y": [0, 1] * 4})
    frame["alone"] = [0.5] * 4 + [0.25] * 4
    federation = fp.Federation.from_frame(frame, "site", "y", about=["alone"])
    assert federation.shape == (1,)
    assert federation.about == {"alone": (0.5, 0.25)}
    made = experiment(federation, "alone")
    assert made.lstar == {"x": 0.5, "y": 0.25}
    assert federation.only("y").about == {"alone": (0.25,)}
    frame.loc[6, "alone"] = 0.3
    with pytest.raises(InputError, match="'alone' is not the same in all rows of client 'y'"):
        fp.Federation.from_frame(frame, "site", "y", about=["alone"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_is_taken(unlike, tmp_path, kind):
    table = pd.DataFrame({"client": list("0123"), "lstar": NUMBERS, "note": ["-"] * 4})
    name = tmp_path / f"alone.{kind}"
    if kind == "csv":
        table.to_csv(name, index=False)
    else:
        table.to_parquet(name)
    assert experiment(unlike, str(name)).lstar == BY_NAME
    assert experiment(unlike, name).lstar == BY_NAME


def test_the_table_of_another_run_is_taken(unlike, tmp_path):
    first = experiment(unlike, "best_validation(rounds=3)").run(tmp_path / "one")
    again = experiment(unlike, str(tmp_path / "one" / "lstar.parquet")).run(tmp_path / "two")
    kept = ["validation_lstar", "test_lstar", "test_gap"]
    pd.testing.assert_frame_equal(first.clients[kept], again.clients[kept])


@pytest.mark.parametrize("inline", [200, 1])
@pytest.mark.parametrize(
    "value",
    [
        BY_NAME,
        pd.DataFrame({"test": NUMBERS, "validation": NUMBERS}, index=list("0123")),
        pd.DataFrame({"train": NUMBERS, "validation": NUMBERS}, index=list("0123")),
    ],
)
def test_a_run_can_be_run_again_and_resumed(unlike, tmp_path, monkeypatch, inline, value):
    monkeypatch.setattr(describing, "INLINE", inline)
    task = fp.Classification("linear")
    whole = experiment(unlike, value, rounds=4).run(tmp_path / "whole")
    experiment(unlike, value).run(tmp_path / "parts")
    written = yaml.safe_load((tmp_path / "parts" / "experiment.yaml").read_text())
    assert isinstance(written["lstar"], dict if inline > 4 else str)
    gone_on = file.resume(tmp_path / "parts", federation=unlike, task=task, rounds=4)
    pd.testing.assert_frame_equal(gone_on.clients, whole.clients)
    settings = RunDir(tmp_path / "whole").settings()
    again = file.experiment(settings, federation=unlike, task=task).run()
    pd.testing.assert_frame_equal(again.clients, whole.clients)
    with pytest.raises(InputError, match="here it is 'best_validation'"):
        experiment(unlike, "best_validation", rounds=4).resume(tmp_path / "whole")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([0.1, 0.2], r"lstar of shape \(2,\) for 4 clients"),
        (["a", "b", "c", "d"], "lstar is a rule, a file, or numbers"),
        ({**BY_NAME, "3": "low"}, "lstar of client '3' is 'low': a number is expected"),
        ({**BY_NAME, "3": float("nan")}, "lstar of client '3' on train is nan: a finite number"),
        ({**BY_NAME, "3": float("inf")}, "lstar of client '3' on train is inf: a finite number"),
        ({**BY_NAME, "03": 1.0}, "unknown client in lstar '03'"),
        ({"0": 0.1, "1": 0.2}, "lstar has no number for client '2', nor for 1 others"),
        ({}, "lstar has no number for client '0'"),
        ({**BY_NAME, "3": {"tets": 1.0}}, "unknown split of lstar of client '3' 'tets'"),
        ({**BY_NAME, "3": {"test": 1.0}}, "lstar of client '3' on train is nan"),
        (pd.DataFrame({"loss": NUMBERS}, index=list("0123")), "lstar needs a column lstar"),
        (pd.Series(NUMBERS, index=list("0122")), "lstar names client '2' twice"),
        ("missing.csv", "cannot read missing.csv: No such file"),
        ("alone", "unknown rule for L"),
    ],
)
def test_what_is_wrong_with_numbers_is_said_in_a_line(unlike, value, told):
    with pytest.raises(InputError, match=told) as error:
        experiment(unlike, value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"name,lstar\n0,1\n", "has no column 'client'"),
        ("a.csv", b"", "cannot read .*a.csv"),
        ("a.csv", b'client,lstar\n0,"1\n', "cannot read .*a.csv"),
        ("a.csv", b"client,lstar\n0,x\n1,1\n2,1\n3,1\n", "lstar of client '0' is 'x'"),
        ("a.parquet", b"not a table", "cannot read .*a.parquet"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_line(unlike, tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told) as error:
        experiment(unlike, tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_file_is_bounded(unlike, tmp_path, monkeypatch):
    small = tmp_path / "alone.csv"
    small.write_text("client,lstar\n" + "".join(f"{k},0.1\n" for k in range(4)))
    wide = Path(str(small.with_suffix(".parquet")))
    pd.read_csv(small).to_parquet(wide)
    monkeypatch.setattr(given, "MOST_CLIENTS", 3)
    for name in (small, wide):
        with pytest.raises(InputError, match="more than 3 rows"):
            experiment(unlike, name)
    monkeypatch.setattr(given, "LARGEST_FILE", 10)
    with pytest.raises(InputError, match="too large"):
        experiment(unlike, small)


def test_a_summary_of_gaps_is_not_watched_where_no_gap_will_be_known(unlike):
    table = pd.DataFrame({"test": NUMBERS}, index=list("0123"))
    with pytest.raises(InputError, match=r"'max_gap' needs L\* on validation"):
        experiment(unlike, table, keep="max_gap")
