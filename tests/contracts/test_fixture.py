"""The fixture of pytest: a test fails where its run does not keep the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_contracts import run

import fedparity as fp
from fedparity import pytest_plugin

fedparity_contract = pytest_plugin.fedparity_contract


def test_a_contract_that_holds_lets_a_test_pass(fedparity_contract, tmp_path):
    file = tmp_path / "contract.yaml"
    file.write_text("clauses: ['max_gap <= 0.2']")
    fedparity_contract(run([0.0, 0.05]), "max_gap <= 0.1 @ 95%", file)


def test_one_that_is_broken_fails_it_with_the_clause(fedparity_contract):
    with pytest.raises(pytest.fail.Exception, match=r"^broken: max_gap <= 0.1 .*c1: gap 0.300"):
        fedparity_contract(run([0.0, 0.3]), "max_gap <= 0.1", strict=False)


def test_one_that_cannot_be_told_fails_it_or_skips_it(fedparity_contract):
    with pytest.raises(pytest.fail.Exception, match="cannot be told"):
        fedparity_contract(run([0.0], n=24), "max_gap <= 9")
    with pytest.raises(pytest.skip.Exception, match="cannot be told"):
        fedparity_contract(run([0.0], n=24), "max_gap <= 9", strict=False)


def test_a_clause_that_compares_takes_the_run_it_compares_with(fedparity_contract):
    plain = run([0.0, 0.3])
    plain.settings["algorithm"] = "fedavg"
    fedparity_contract(run([0.0, 0.2]), "not levelled_down against fedavg", against=plain)


def test_a_contract_without_clauses_is_refused(fedparity_contract):
    with pytest.raises(fp.InputError, match="at least one clause"):
        fedparity_contract(run([0.0]))


def test_pytest_finds_it_where_fedparity_is_installed():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (module,) = re.findall(r'entry-points.pytest11\]\nfedparity = "(.+)"', text)
    assert module == pytest_plugin.__name__
