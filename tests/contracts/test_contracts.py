"""Contracts: strict to read, and judged as holding, broken or open."""

import numpy as np
import pandas as pd
import pytest

from fedparity import Classification, Result
from fedparity.contracts import judge, parse_clause, read_contract
from fedparity.errors import InputError


def run(gaps, n=100, weights="size"):
    """Return a run of clients whose gaps are 0.1 above or below these, example by example."""
    names = [f"c{k}" for k in range(len(gaps))]
    tables = []
    for name, gap in zip(names, gaps, strict=True):
        about = {"client": name, "split": "test", "index": range(n)}
        loss = 1 + gap + 0.1 * np.where(np.arange(n) % 2, 1, -1)
        tables.append(pd.DataFrame({**about, "model": "global", "loss": loss}))
        tables.append(pd.DataFrame({**about, "model": "alone", "loss": 1.0}))
    counts = dict.fromkeys(("n_train", "n_validation", "n_test"), n)
    clients = pd.DataFrame({"client": names, **counts, "test_lstar": 1.0, "test_loss": 1.0})
    settings = {"algorithm": "any", "record": {"weights": weights}}
    made = Result(clients, pd.DataFrame(), settings, rounds=1)
    made.keep(pd.concat(tables), None, Classification("linear"), None, {})
    return made


@pytest.mark.parametrize(
    ("gaps", "word"),
    [([0.0, 0.05], "holds"), ([0.0, 0.3], "broken"), ([0.0, 0.095], "cannot be told")],
)
def test_a_limit_holds_is_broken_or_cannot_be_told(gaps, word):
    # the mean of 100 gaps spread by 0.1 has a standard error of 0.01
    (found,) = judge(run(gaps), ["max_gap <= 0.1 @ 95%"])
    assert found.word == word
    (same,) = judge(run(gaps), ["nobody worse than alone by more than 0.1"])
    assert same.word == word


def test_a_limit_does_not_hold_where_the_sample_may_have_missed_a_tail():
    made = run([0.0], n=100)
    losses = made.predictions
    ours = losses["model"] == "global"
    # one example of 100 is worse, by 1: the mean is 0.01 and its bound 0.01 + 1.66 * 0.1 / 10
    losses.loc[ours, "loss"] = np.where(losses.loc[ours, "index"] == 0, 2.0, 1.0)
    assert made.certainty(metrics=(), confidence=0.9)["gap_high"].item() == pytest.approx(
        0.0266, abs=1e-4
    )
    assert judge(made, ["max_gap <= 0.05"])[0].word == "cannot be told"
    assert judge(made, ["max_gap <= 0.1"])[0].word == "holds"


def test_a_client_of_few_examples_settles_nothing():
    assert judge(run([0.0], n=24), ["max_gap <= 9"])[0].word == "cannot be told"
    assert judge(run([5.0], n=24), ["max_gap <= 0"])[0].word == "cannot be told"


def test_clients_that_train_alone_keep_no_contract():
    assert judge(run([0.0], weights="none"), ["max_gap <= 9"])[0].word == "cannot be told"


@pytest.mark.parametrize(
    "text",
    [
        "max_gap < 0.1",
        "max_gap <= 1e3",
        "max_gap <= 0.1 @ 95",
        "max_gap <= 0.1 @ 30%",
        "max_gap <= __import__('os')",
        "mean_gap <= 1",
        "not levelled_down",
        "not levelled_down against fedavg(",
        "",
    ],
)
def test_what_is_no_clause_is_refused(text):
    with pytest.raises(InputError, match=r"clause|cannot read"):
        parse_clause(text)


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "clauses: []", "clauses: 3", "clauses: [3]", "clauses: [", "limits: [a]"],
)
def test_what_is_no_contract_is_refused(tmp_path, text):
    file = tmp_path / "contract.yaml"
    file.write_text(text)
    with pytest.raises(InputError):
        read_contract(file)


def test_a_file_has_a_clause_a_line(tmp_path):
    file = tmp_path / "contract.yaml"
    file.write_text(
        "clauses:\n- max_gap <= 0.1 @ 90%\n- nobody worse than alone by more than 0.02\n"
    )
    assert [(c.limit, c.confidence) for c in read_contract(file)] == [(0.1, 0.9), (0.02, 0.95)]
