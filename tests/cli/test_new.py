"""A method that was begun by ``fedparity new method`` works before a line of it is changed."""

from __future__ import annotations

import doctest
import importlib
import runpy
import sys
from pathlib import Path

import pytest

NAME = "my_first_method"


@pytest.fixture
def begun(cli, monkeypatch):
    """Return what the command said, with its directory on Python's path."""
    done = cli("new", "method", NAME, "--out", "mine")
    monkeypatch.syspath_prepend(str(Path("mine").absolute()))
    yield done
    sys.modules.pop(NAME, None)


def test_the_generated_test_passes_as_it_is(begun):
    assert (begun.code, begun.err) == (0, "")
    assert begun.out.startswith(f"mine/{NAME}.py\nmine/test_{NAME}.py\n")
    tests = runpy.run_path(f"mine/test_{NAME}.py")
    named = [name for name in tests if name.startswith("test_")]
    assert len(named) == 2
    for name in named:
        tests[name]()
    assert doctest.testmod(importlib.import_module(NAME)).failed == 0


def test_the_part_runs_by_its_import_path(begun, cli):
    assert f"--algorithm '{NAME}:MyFirstMethod(q=1.0)'" in begun.out
    told = ("--data", "eagle_synthetic(n=10)", "--model", "linear", "--lstar", "none")
    path = f"{NAME}:MyFirstMethod(q=1.0)"
    assert cli("run", *told, "--rounds", "1", "--algorithm", path).code == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("My-Method", "cannot name a method"),
        ("class", "cannot name a method"),
        ("../evil", "cannot name a method"),
        ("scaffold", "has a method 'scaffold' already"),
        ("fedprox", "has a method 'fedprox' already"),
        ("json", "is a package that is installed"),
        ("torch", "is a package that is installed"),
    ],
)
def test_a_name_that_will_not_do_is_one_line(cli, name, told):
    done = cli("new", "method", name)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert told in done.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("file", [f"{NAME}.py", f"test_{NAME}.py"])
def test_nothing_is_overwritten(cli, file):
    Path(file).write_text("mine")
    done = cli("new", "method", NAME)
    assert (done.code, done.err) == (
        2,
        f"fedparity: {file} exists already: choose another name, or a directory by --out\n",
    )
    assert [path.name for path in Path().iterdir()] == [file]
    assert Path(file).read_text() == "mine"


def test_something_else_that_is_new_is_one_line(cli):
    done = cli("new", "metod", NAME)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "did you mean 'method'" in done.err
