"""``fedparity coalitions``, called as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedparity.joining import training

DATA = [
    *("coalitions", "--data", "eagle_synthetic(n=60)", "--model", "linear"),
    *("--rounds", "5", "--lr", "0.5", "--steps", "1", "--fractions", "0.5,0.1,0.4"),
]


def test_a_table_of_every_client_and_a_file_of_every_loss(cli):
    done = cli(*DATA, "--seeds", "2", "--out", "found/all.csv")
    assert done.code == 0
    told = " ".join(done.out.split())
    assert "14 trainings, 2 seeds" in told  # 7 coalitions of 3 clients
    assert "Shapley" in told
    assert "intervals are widened" in told
    assert "no group would leave" in told or "some group would leave" in told
    table = pd.read_csv("found/all.csv")
    assert set(table["client"]) == {"client-1", "client-2", "client-3"}
    assert set(table["seed"]) == {0, 1}
    assert [file.name for file in Path("found").iterdir()] == ["all.csv"]


def test_one_seed_says_that_nothing_can_be_told(cli):
    done = cli(*DATA, "--seeds", "1")
    assert done.code == 0
    assert "nothing can be told" in done.out
    assert "better off" not in done.out


def test_what_is_done_is_in_a_file_when_it_is_interrupted(cli, monkeypatch):
    whole, done = training._trained, []

    def stopping(experiment, group):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(group)
        return whole(experiment, group)

    monkeypatch.setattr(training, "_trained", stopping)
    assert cli(*DATA, "--seeds", "1", "--out", "all.csv").code == 130
    assert len(pd.read_csv("all.csv.part")) == 3  # each client alone
    assert not Path("all.csv").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--seeds", "0"], "--seeds"),
        (["--confidence", "2"], "confidence is above 0.5 and below 1, got 2"),
        (["--fractions", "0.9,0.1,0"], "has no test examples"),
        (["--algorithm", "cap(share=0.5)"], "needs at least 2 clients"),
        (["--out", "there.csv"], "there.csv exists: name a new file"),
        (["--out", "there.csv/all.csv"], "cannot write"),
    ],
)
def test_what_is_wrong_is_one_line_and_code_2(cli, more, told):
    Path("there.csv").touch()
    done = cli(*DATA, *more)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
