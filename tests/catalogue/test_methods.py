"""The lists of what there is, and the explanation of an algorithm."""

from __future__ import annotations

import pytest

from fedparity.catalogue.explanation import explain, learns
from fedparity.catalogue.methods import KINDS, Listing, listing
from fedparity.catalogue.settings import allowed, settings_of, summary_line
from fedparity.errors import InputError
from fedparity.parts import PARTS
from fedparity.recipes import RECIPES, algorithm


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_can_be_printed_and_written(kind, console, printed):
    found = listing(kind)
    found.show(console)
    assert found.rows[0][0] in printed()
    lines = found.markdown().splitlines()
    assert len(lines) == len(found.rows) + 2
    assert all(line.count(" | ") == len(found.columns) - 1 for line in lines)


def test_a_list_that_does_not_exist_has_a_nearest_one():
    with pytest.raises(InputError, match="did you mean 'algorithms'"):
        listing("algorithm")


def test_a_part_with_an_algorithm_of_its_own_is_listed_under_that_name():
    names = {row[0] for row in listing("algorithms").rows}
    assert {"fedavg", "fedprox", "fedavgm", "eagle", "qffl", "afl", "local"} <= names
    assert not {"prox", "momentum", "uniform", "pgvc"} & names
    assert set(RECIPES) <= names
    assert {row[0] for row in listing("parts").rows} == set(PARTS)


def test_the_rule_of_divergence_stands_with_the_metrics(console, printed):
    listing("metrics").show(console)
    assert "more than twice what it was before the first round" in " ".join(printed().split())


def test_cells_cannot_break_a_markdown_table():
    assert Listing(("a",), (("x | y\nz",),)).markdown().splitlines()[2] == "| x \\| y<br>z |"


@pytest.mark.parametrize("name", PARTS)
def test_every_setting_of_a_part_has_a_range(name):
    for setting in settings_of(PARTS[name]):
        assert setting.allowed, setting.name


@pytest.mark.parametrize("name", PARTS)
def test_words_about_parts_are_plain(name):
    told = [summary_line(PARTS[name]), *(s.meaning for s in settings_of(PARTS[name]))]
    assert not any(mark in text for text in told for mark in ("\\", "``", ":math:", ":class:"))


def test_ranges_are_said_in_words():
    assert allowed({"type": "number", "minimum": 0, "exclusiveMaximum": 1}) == ">= 0, < 1"
    assert allowed({"enum": ["a", "b"]}) == "a | b"
    assert allowed({"type": "boolean"}) == "true | false"
    assert allowed({"type": "number"}) == "a number"


def test_an_explanation_tells_costs_knowledge_hooks_and_settings(console, printed):
    explain("eagle+prox(mu=0.5)", 1000, console)
    text = printed()
    assert "Exchanges a round: 1 (train)" in text
    assert "Sent by a client:  d + 1 floats; with d = 1,000: 1,001" in text
    assert "its update, its validation loss gap" in text
    assert "each client finds its best loss alone" in text
    assert "Active hooks: grad." in text
    assert "mu=0.5 (default 0.1)" in text


def test_what_the_server_learns_of_several_parts_is_said_once():
    assert learns(algorithm("qffl+momentum")) == "its update, its training loss"
    assert learns(algorithm("fedavg")) == "its update"


def test_training_alone_is_no_federation(console, printed):
    explain("local", 1000, console)
    assert "nothing is sent" in printed()


@pytest.mark.parametrize("name", [*PARTS, *RECIPES])
def test_every_algorithm_can_be_explained(name, console):
    explain(name, 1000, console)
