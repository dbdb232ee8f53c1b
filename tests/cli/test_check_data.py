"""``fedparity check``, the lists, and names as people write them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import fedparity as fp
from fedparity.catalogue.methods import KINDS, listing
from fedparity.errors import InputError
from fedparity.parts import Prox
from fedparity.recipes import KNOWN


def write(**changes) -> None:
    """Write a table of two hospitals."""
    columns = {"hospital": ["a", "b"] * 10, "age": range(20), "ill": [0, 0, 1, 1] * 5}
    pd.DataFrame(columns | changes).to_csv("patients.csv", index=False)


COLUMNS = ("--client", "hospital", "--target", "ill")


def test_check_tells_all_problems_at_once_and_trains_nothing(cli):
    write(seen=["2020-01-01"] * 20, bed=["x", *range(19)], ward=["w"] * 20)
    done = cli("check", "patients.csv", *COLUMNS)
    assert done.code == 2
    told = " ".join(done.out.split())
    assert told.count("problem") == 2
    assert "'seen'" in told
    assert "'bed'" in told
    assert "is always w" in told
    assert list(Path().iterdir()) == [Path("patients.csv")]


def test_check_shows_data_that_can_be_trained_with(cli):
    write()
    done = cli("check", "patients.csv", *COLUMNS)
    assert done.code == 0, done.err
    assert "Federation(2 clients, 16 train + 2 validation + 2 test examples" in done.out
    assert "Nothing odd was found." in done.out
    done = cli("check", "digits", "--partition", "shards", "--clients", "5")
    assert done.code == 0
    assert "lack classes" in " ".join(done.out.split())


def test_the_lists_are_listed(cli):
    done = cli("list")
    assert done.code == 0
    assert all(kind in done.out for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_of_a_list_is_explained(cli, kind):
    names = [row[0] for row in listing(kind).rows]
    done = cli("explain", names[-1].replace("_", "-").upper())
    assert done.code == 0, done.err
    assert names[-1] in done.out.lower().replace("-", "_")
    # the others are looked up alike: as algorithms, or in the list by their plain name
    assert kind not in ("algorithms", "parts") or set(names) <= set(KNOWN)
    assert [name.lower().replace("-", "_") for name in names] == names


def test_names_are_read_in_any_case_and_with_hyphens():
    assert fp.algorithm("FedAvg").parts == ()
    assert fp.algorithm("fedprox(mu=0.5)").parts == fp.algorithm("FedProx(mu=0.5)").parts
    assert len(fp.datasets.load("EAGLE-Synthetic(n=10)")) == 30


def test_the_shell_completes(cli, monkeypatch):
    assert "--install-completion" in cli("--help").out
    monkeypatch.setenv("_FEDPARITY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fedparity ex")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert sorted(cli().out.split()) == ["explain", "export"]


def test_the_version_is_told_in_python():
    assert fp.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="did you mean 'Experiment'"):
        fp.Experimnt  # noqa: B018


def test_mistakes_in_python_are_one_line(alike):
    made = fp.datasets.digits()
    with pytest.raises(InputError, match=r"federation is a Dataset: deal it to clients first"):
        fp.Experiment(made, "linear")
    with pytest.raises(InputError, match=r"unknown setting of Experiment 'round': did you mean"):
        fp.Experiment(alike, "linear", round=3)
    with pytest.raises(InputError, match=r"'lr' belongs to the solver: Solver\(lr=...\)"):
        fp.Experiment(alike, "linear", lr=3)


def test_one_part_is_an_algorithm(alike):
    assert fp.Experiment(alike, "linear", Prox(mu=0.5)).algorithm.parts == (Prox(mu=0.5),)
