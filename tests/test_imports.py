"""Code that a text names: what is imported, and what of it is taken."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from fedparity import spec
from fedparity.data.noise import Noise
from fedparity.errors import InputError
from fedparity.imports import NOTHING, Allowed, ImportPath, find, look_up, text_of

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


def named(text: str, kind: str = "model") -> object:
    return look_up(kind, spec.parse_one(text), {"known": nn.Linear}, NOTHING, nn.Module)


def test_an_offer_has_a_short_name_beside_those_of_the_table(package, tmp_path):
    install(tmp_path, package)
    assert named("nice") is sys.modules[package].make
    with pytest.raises(InputError, match=r"unknown model 'nicer': did you mean 'nice'\? Known: "):
        named("nicer")
    with pytest.raises(InputError, match=r"unknown task 'nice': .*Known: known"):
        named("nice", "task")


def test_an_offer_does_not_take_a_name_of_the_table(package, tmp_path):
    install(tmp_path, package)
    file = tmp_path / "offer-1.0.dist-info" / "entry_points.txt"
    file.write_text(file.read_text().replace("nice", "known"))
    assert named("known") is nn.Linear
    assert not imported(package)


def test_a_name_that_two_distributions_offer_is_refused(package, tmp_path):
    install(tmp_path, package)
    second = tmp_path / "second-1.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Name: second\nVersion: 1.0\n")
    (second / "entry_points.txt").write_text(f"[fedparity.models]\nnice = {package}:Net\n")
    with pytest.raises(InputError, match=f"'{package}:Net' and '{package}:make': name one of"):
        named("nice")
    assert not imported(package)


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


class Kept:
    """Its constructor keeps what it takes under the same names."""

    def __init__(self, share: float, names: tuple[str, ...] = ()) -> None:
        self.share, self.names = share, names


class Forgot:
    def __init__(self, share: float) -> None:
        self.half = share / 2


class Plain:
    pass


class Drawn(Noise):
    def flip(self, labels, classes, rng):
        return labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Kept(0.5, ("a", "b")), f"{__name__}:Kept(share=0.5, names=['a', 'b'])"),
        (Kept(np.float64(0.5)), f"{__name__}:Kept(share=0.5, names=[])"),
        (Kept(-math.inf), f"{__name__}:Kept(share=-inf, names=[])"),
        (Plain(), f"{__name__}:Plain"),
        (Drawn(), f"{__name__}:Drawn"),
        (Kept([np.ones(2)]), "__main__:Kept(share='list', names=[])"),
        (Forgot(0.5), "__main__:Forgot(share='object')"),
    ],
)
def test_an_object_is_written_with_all_that_makes_it_again(value, text):
    assert text_of(value) == text
    if text.startswith(__name__):
        term = spec.parse_one(text)
        again = look_up("label noise", term, {}, Allowed.by(named=text), type(value))
        assert vars(again(**term.settings)) == vars(value)
