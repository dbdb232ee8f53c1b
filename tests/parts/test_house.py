"""House rules of every part: documentation, names and ranges."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import pkgutil

import pytest

import fedparity.parts
from fedparity.parts import PARTS, Part

MODULES = [
    found.name
    for found in pkgutil.walk_packages(fedparity.parts.__path__, "fedparity.parts.")
    if not found.ispkg
]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_documented_under_the_house_headings(name):
    text = inspect.getdoc(PARTS[name])
    assert text
    headings = ["Notes", "Examples"]
    if dataclasses.fields(PARTS[name]):
        headings.insert(0, "Parameters")
    if PARTS[name].paper != "-":
        headings.append("References")
    places = [text.find(f"\n{heading}\n{'-' * len(heading)}\n") for heading in headings]
    assert all(place > 0 for place in places), headings
    assert places == sorted(places)
    summary = text.split("\n\n")[0]
    assert summary.endswith((".", "`", ":")), summary


@pytest.mark.parametrize("name", PARTS)
def test_every_setting_is_documented(name):
    text = inspect.getdoc(PARTS[name]) or ""
    parameters = text.partition("Parameters\n----------")[2].partition("\nNotes\n")[0]
    headings = [line for line in parameters.splitlines() if line and not line.startswith(" ")]
    documented = {word.strip() for line in headings for word in line.split(",")}
    assert {f.name for f in dataclasses.fields(PARTS[name])} == documented


@pytest.mark.parametrize("name", PARTS)
def test_a_part_says_what_is_sent_and_what_the_server_learns(name):
    assert "Sent" in (inspect.getdoc(PARTS[name]) or "")
    assert PARTS[name].learns
    assert PARTS[name].equalises
    assert PARTS[name].paper


@pytest.mark.parametrize("name", PARTS)
def test_a_part_stands_in_the_table_under_its_own_name(name):
    assert PARTS[name].name == name
    assert issubclass(PARTS[name], Part)


@pytest.mark.parametrize("name", PARTS)
def test_a_default_never_switches_a_method_off(name):
    part = PARTS[name]()
    if dataclasses.fields(PARTS[name]):
        assert part.neutral() != part


def test_the_table_is_in_order_and_complete():
    defined = {
        found
        for module in MODULES
        for _, found in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        if issubclass(found, Part) and found.__module__ == module
    }
    assert len(defined) > 10
    # A class that others are made of has no place in the table.
    bases = {base for part in PARTS.values() for base in part.__mro__[1:-2]}
    assert {found.name for found in defined - bases} <= set(PARTS)


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
