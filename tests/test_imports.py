"""Code that a text names: what is imported, and what of it is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed, ImportPath, find

CODE = """
import functools, os, subprocess
from pathlib import Path
from subprocess import run
from torch.nn import Linear, Module

Path(__file__).with_name("imported").touch()

def make(shape, outputs):
    return Linear(shape[0], outputs)

class Net(Module):
    pass

class Thing:
    def method(self):
        pass

system, popen = os.system, os.popen
bound, partial, made, number = Thing().method, functools.partial(make, (2,)), Linear(2, 2), 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package that leaves a mark when it is imported."""
    name = f"package_{tmp_path.name}".replace("-", "_")
    (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / name / "__init__.py").write_text(CODE)
    (tmp_path / name / "inner" / "__init__.py").write_text("from .. import make\nmine = lambda: 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def look(text: str, allowed: Allowed = NOTHING) -> object:
    path = ImportPath.read(text)
    assert path is not None
    return find(path, allowed, "model", nn.Module)


def imported(package: str) -> bool:
    return package in sys.modules


def test_what_is_not_allowed_is_not_even_imported(package, tmp_path):
    for allowed in (NOTHING, Allowed.by("other"), Allowed.by(named="other:make")):
        with pytest.raises(InputError, match=rf"'{package}:make'.* --allow-import {package} "):
            look(f"{package}:make", allowed)
    assert not imported(package)
    assert not (tmp_path / package / "imported").exists()


def test_a_name_that_only_begins_alike_is_not_allowed(package):
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:make", Allowed.by(package[:-1]))
    assert not imported(package)


@pytest.mark.parametrize("name", ["make", "Net"])
def test_functions_and_modules_of_an_allowed_package_are_taken(package, name):
    for allowed in (
        Allowed.by(package),
        Allowed.by(("other", package)),
        Allowed.by(named=f"{package}:{name}(width=3)"),
    ):
        assert look(f"{package}:{name}", allowed) is vars(sys.modules[package])[name]


def test_a_path_that_is_named_allows_nothing_beside_it(package):
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:Net", Allowed.by(named=f"{package}:make"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("run", "comes from subprocess"),
        ("popen", "comes from os"),
        ("Linear", r"comes from torch\.nn\.modules\.linear"),
        *((name, "is not a model factory") for name in ("system", "os", "Thing", "bound")),
        *((name, "is not a model factory") for name in ("partial", "made", "number")),
    ],
)
def test_what_an_allowed_package_did_not_define_is_refused(package, name, told):
    with pytest.raises(InputError, match=told):
        look(f"{package}:{name}", Allowed.by(package))
    with pytest.raises(InputError, match=told):
        look(f"{package}:{name}", Allowed.by(named=f"{package}:{name}"))


def test_a_module_can_be_allowed_without_the_package_around_it(package):
    inner = Allowed.by(f"{package}.inner")
    assert look(f"{package}.inner:mine", inner)
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:make", inner)
    with pytest.raises(InputError, match=f"not of {package}.inner, it comes from {package}:"):
        look(f"{package}.inner:make", inner)


@pytest.mark.parametrize("text", ["os:popen", "subprocess:run", "builtins:exec", "posixpath:join"])
def test_the_standard_library_is_never_called(text):
    path = ImportPath.read(text)
    for allowed in (NOTHING, Allowed.by(text.partition(":")[0]), Allowed.by(named=text)):
        with pytest.raises(InputError, match=f"'{path}' names code of Python's own library"):
            look(text, allowed)


def install(folder: Path, package: str, group: str = "fedparity.models") -> None:
    """Make a folder look as if a distribution were installed there that offers a factory."""
    (folder / "offer-1.0.dist-info").mkdir(parents=True)
    entries = f"[{group}]\nnice = {package}:make\n"
    (folder / "offer-1.0.dist-info" / "entry_points.txt").write_text(entries)
    (folder / "offer-1.0.dist-info" / "METADATA").write_text("Name: offer\nVersion: 1.0\n")


def test_what_an_installed_distribution_offers_is_taken_and_nothing_beside_it(package, tmp_path):
    install(tmp_path, package)
    assert look(f"{package}:make")
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:Net")


def test_an_offer_for_another_purpose_does_not_count(package, tmp_path):
    install(tmp_path, package, group="console_scripts")
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:make")


def test_the_current_directory_is_no_installed_distribution(package, tmp_path, monkeypatch):
    install(tmp_path, package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    with pytest.raises(InputError, match="--allow-import"):
        look(f"{package}:make")
    assert not imported(package)


@pytest.mark.parametrize("name", ["../nets", "nets:small", "nets.", "", "a b", "-x"])
def test_only_names_of_packages_can_be_allowed(name):
    with pytest.raises(InputError, match="name a package, such as mypackage"):
        Allowed.by((name,))


@pytest.mark.parametrize(
    "text", ["posixpath:os.system", "a:b.c", "a:b()()", "a/b:c", ".a:b", "a:b(c=d())", "a:b(c=d.e)"]
)
def test_a_path_is_names_and_settings_are_literals(text):
    with pytest.raises(InputError) as caught:
        ImportPath.read(text)
    assert "\n" not in str(caught.value)
