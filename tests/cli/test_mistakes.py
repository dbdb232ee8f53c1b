"""A mistake is answered in one line, with an exit code, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls import DIGITS

import fedparity as fp
from fedparity.cli import main
from fedparity.cli.flags import settings_from
from fedparity.errors import InputError

WRONG = [
    (["rnu"], "unknown command 'rnu': did you mean 'run'"),
    (["run"], "names no data"),
    (["run", "--rouns", "3"], "no such option '--rouns': did you mean '--rounds'"),
    (["run", *DIGITS, "--data", "digit"], "unknown dataset 'digit': did you mean 'digits'"),
    (["run", "--data", "digits", "--model", "linear"], "name a partition, such as"),
    (["run", *DIGITS, "--partition", "dirichlet"], "dirichlet: alpha must be given"),
    (["run", *DIGITS, "--partition", "dirichlet(alpha=-1)"], "alpha should be greater than 0"),
    (["run", *DIGITS, "--clients", "-5"], "data: clients should be greater than or equal to 1"),
    (["run", *DIGITS, "--fractions", "0.5,0.5"], "--fractions expects 0.8,0.1,0.1"),
    (["run", *DIGITS, "--noise", "symetric"], "unknown label noise 'symetric': did you mean"),
    (["run", *DIGITS, "--model", "linaer"], "unknown model 'linaer': did you mean 'linear'"),
    (["run", *DIGITS, "--model", "absent.nets:small"], "No module named 'absent'"),
    (["run", *DIGITS, "--task", "classify"], "did you mean 'classification'"),
    (["run", *DIGITS, "--algorithm", "egale"], "did you mean 'eagle'"),
    (["run", *DIGITS, "--algorithm", "eagle(lambda=1)"], "did you mean 'lam'"),
    (["run", *DIGITS, "--algorithm", "eagle(lam=-1)"], "should be greater than or equal to 0"),
    (["run", *DIGITS, "--algorithm", "eagle(lam=1"], "expected name(setting=value)"),
    (["run", *DIGITS, "--algorithm", "eagle+afl"], "'eagle+afl' does not compose"),
    (["run", *DIGITS, "--lr", "-1"], "solver: lr should be greater than 0, got -1.0"),
    (["run", *DIGITS, "--lr", "abc"], "invalid value for '--lr'"),
    (["run", *DIGITS, "--rounds", "0"], "rounds should be greater than or equal to 1, got 0"),
    (["run", *DIGITS, "--batch", "some"], "--batch expects int|full, got 'some'"),
    (["run", *DIGITS, "--steps", "2", "--epochs", "2"], "solver: takes steps or epochs, not both"),
    (["run", *DIGITS, "--cohort", "100"], "a whole number up to 5"),
    (["run", *DIGITS, "--keep", "worst_acuracy"], "did you mean 'worst_accuracy'"),
    (["run", *DIGITS, "--engine", "gpu"], "'auto', 'loop', 'vmap' or 'flower', got 'gpu'"),
    (["run", *DIGITS, "--data", "mnist", "--data-dir", "nowhere"], "in nowhere"),
    (["run", "absent.yaml"], "cannot read absent.yaml: No such file"),
    (["compare", *DIGITS], "name the algorithms to compare"),
    (["compare", *DIGITS, "--algorithms", "fedavg,fedavg"], "'fedavg' stands twice"),
    (["compare", *DIGITS, "--algorithms", "fedavg,nope"], "unknown algorithm 'nope'"),
    (["resume", "absent"], "absent holds no run"),
    (["resume"], "missing argument"),
    (["list", "algorithm"], "did you mean 'algorithms'"),
    (["explain", "egale"], "did you mean 'eagle'"),
]


@pytest.mark.parametrize(("args", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
def test_a_mistake_is_one_line_and_leaves_nothing(cli, args, told):
    done = cli(*args)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert done.err.startswith("fedparity: ")
    assert told in done.err
    assert done.out == ""
    assert list(Path().iterdir()) == []


BAD_FILES = [
    ("data: digits\n  model: linear", "is not valid YAML"),
    ("hello", "holds no settings"),
    ("dataset: digits", "setting 'dataset' belongs under 'data': write 'data: {dataset: ...}'"),
    ("data: digits\nmodel: linear\npartition: iid", "'partition' belongs under 'data'"),
    ("data: digits\nmodel: linear\nlr: 0.1", "'lr' belongs under 'solver'"),
    ("data: digits\nmodel: linear\npatience: 3", "'patience' belongs under 'stop'"),
    ("data: {dataset: digits, client: 5}\nmodel: linear", "did you mean 'clients'"),
    ("data: [1]\nmodel: linear", "'data' must be a table"),
    ("data: digits\nmodel: linear\nevaluate-every: 3", "did you mean 'evaluate_every'"),
]


@pytest.mark.parametrize(("text", "told"), BAD_FILES)
def test_a_mistake_in_a_file_is_one_line(cli, text, told):
    Path("bad.yaml").write_text(text)
    done = cli("run", "bad.yaml")
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_directory_with_a_run_is_not_overwritten(cli):
    assert cli("run", *DIGITS, "--out", "run").code == 0
    before = Path("run/clients.parquet").read_bytes()
    done = cli("run", *DIGITS, "--algorithm", "afl", "--out", "run")
    assert done.code == 2
    assert "resume it with 'fedparity resume run'" in done.err
    assert Path("run/clients.parquet").read_bytes() == before


def test_a_run_that_fails_ends_with_one(cli):
    absent = ["--drop", "0.99", "--min-replies", "5", "--rounds", "30"]
    done = cli("run", *DIGITS, *absent, "--out", "run")
    assert done.code == 1
    assert "20 rounds in a row without enough replies" in done.err
    assert done.err.count("\n") == 1


def test_an_unforeseen_exception_keeps_its_traceback(cli, monkeypatch):
    def broken(*args: object, **more: object) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr(fp.Experiment, "run", broken)
    with pytest.raises(ZeroDivisionError, match="unforeseen"):
        main(["run", *DIGITS])


def test_each_warning_is_shown_once_in_a_line(cli):
    done = cli("run", *DIGITS, "--clients", "10", "--algorithm", "eagle", "--out", "run")
    assert done.code == 0
    told = [line for line in done.err.splitlines() if "validation examples" in line]
    assert len(told) == 1
    assert told[0].startswith("fedparity: warning: eagle: ")


def test_a_file_whose_tables_are_not_tables_is_refused(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("solver: 3")
    with pytest.raises(InputError, match="'solver' must be a table"):
        settings_from(file, {"lr": 0.1})
