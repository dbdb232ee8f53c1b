"""Contracts on the command line."""

from pathlib import Path

import numpy as np
import pytest

import fedparity as fp


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 3))
    y = (x[:, 0] + rng.normal(size=400) > 0).astype(int)
    owner = np.repeat(["a", "b"], 200)
    data = fp.Federation.from_arrays(x, y, owner, fractions=(0.3, 0.1, 0.6), seed=0)
    made = fp.Experiment(data, "linear", rounds=2)
    return made.run(tmp_path_factory.mktemp("contract") / "run").path


@pytest.mark.parametrize(
    ("clauses", "code", "word"),
    [
        (["max_gap <= 9"], 0, "holds"),
        (["max_gap <= 9", "max_gap <= -9"], 1, "broken"),
        (["max_loss <= 9"], 2, "a contract has no clause"),
    ],
)
def test_the_exit_code_says_whether_a_run_keeps_a_contract(cli, folder, clauses, code, word):
    Path("contract.yaml").write_text("clauses:\n" + "".join(f"- {each}\n" for each in clauses))
    done = cli("check", str(folder), "--contract", "contract.yaml")
    assert done.code == code
    assert word in done.out + done.err


def test_what_cannot_be_told_ends_with_3(cli, folder):
    gap = float(fp.Result.load(folder).certainty(metrics=())["gap"].max())
    Path("contract.yaml").write_text(f"clauses: ['max_gap <= {gap:.6f}']\n")
    assert cli("check", str(folder), "--contract", "contract.yaml").code == 3


def test_a_contract_that_is_not_there_is_wrong_input(cli, folder):
    assert cli("check", str(folder), "--contract", "none.yaml").code == 2


def test_a_clause_that_compares_takes_the_run_named_by_against(cli, folder):
    Path("contract.yaml").write_text("clauses: ['not levelled_down against fedavg']\n")
    named = ("check", str(folder), "--contract", "contract.yaml")
    done = cli(*named)
    assert done.code == 0, done.err  # the run is of fedavg itself
    assert "no client's losses change" in done.out
    assert cli(*named, "--against", str(folder)).code == 0
    assert cli("check", str(folder), "--against", str(folder)).code == 2
    Path("contract.yaml").write_text("clauses: ['not levelled_down against qffl']\n")
    done = cli(*named)
    assert done.code == 2
    assert "no run of 'qffl'" in done.err


def test_flags_about_data_are_refused_beside_a_contract(cli, folder):
    Path("contract.yaml").write_text("clauses: ['max_gap <= 9']\n")
    done = cli("check", str(folder), "--contract", "contract.yaml", "--clients", "3")
    assert done.code == 2
    assert "leave out --clients" in done.err
