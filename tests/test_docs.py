"""The pages of the methods: complete, and true to the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from pathlib import Path

import pytest

from fedparity.parts import PARTS
from fedparity.recipes import RECIPES, algorithm
from fedparity.run import sampling

METHODS = Path(__file__).parent.parent / "docs" / "methods"
PAGES = sorted(page for page in METHODS.glob("*.md") if page.name != "index.md")
HEADINGS = [
    "What it equalises",
    "The update",
    "Settings",
    "What is sent, what the server learns",
    "Where we differ from the paper and the authors' code",
    "Logged numbers",
    "Try it",
    "References",
]
NAMES = sorted({*PARTS, *RECIPES})


def page_of(name: str) -> str:
    """Return the text of the page that introduces a part or recipe before its first heading."""
    found = [text for text in map(read, PAGES) if f"`{name}`" in text.partition("\n## ")[0]]
    assert len(found) == 1, f"'{name}' is introduced on {len(found)} pages"
    return found[0]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def commands(text: str) -> list[str]:
    return re.findall(r"^fedparity run .*$", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_fixed_headings(page):
    lines = read(page).splitlines()
    assert lines[0].startswith("# ")
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    assert all(section(read(page), heading).strip() for heading in HEADINGS)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_introduced_on_one_page_and_tried_there(name):
    text = page_of(name)
    family = {n for n in NAMES if f"`{n}`" in text.partition("\n## ")[0]}
    tried = [algorithm(_algorithm(line)) for line in commands(text)]
    kinds = {part.name for each in tried for part in each.parts}
    own = {part.name for part in algorithm(name).parts}
    assert own <= kinds or (name == "fedavg" and any(not each.parts for each in tried))
    assert name in family


def settings(name: str) -> dict[str, object]:
    if name in PARTS:
        return {f.name: getattr(PARTS[name](), f.name) for f in dataclasses.fields(PARTS[name])}
    known = inspect.signature(RECIPES[name].parts).parameters
    return {key: parameter.default for key, parameter in known.items()}


def value(cell: str) -> object:
    word = cell.strip().strip("`")
    named = {"none": None, "true": True, "false": False, "1/3": 1 / 3}
    if word.lower() in named:
        return named[word.lower()]
    try:
        return float(word)
    except ValueError:
        return word


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_listed_with_its_default(name):
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \|", section(page_of(name), "Settings"), re.MULTILINE
    )
    listed = {(key, value(cell)) for key, cell in rows}
    for key, default in settings(name).items():
        # a setting whose default is the word none reads like one without a default
        wanted = {default, None} if default == "none" else {default}
        assert any((key, each) in listed for each in wanted), f"{key} = {default}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_name_algorithms_that_assemble(page):
    lines = commands(read(page))
    assert lines
    for line in lines:
        tried = algorithm(_algorithm(line))
        assert tried.text
        assert ("--data adult" if tried.group_kinds else "--data digits") in line


def _algorithm(line: str) -> str:
    words = shlex.split(line)
    return words[words.index("--algorithm") + 1]


def test_the_index_lists_every_page_and_method():
    text = read(METHODS / "index.md")
    assert sorted(re.findall(r"\]\((\w+\.md)\)", text)) == [page.name for page in PAGES]
    assert all(f"`{name}`" in text for name in NAMES)


def test_combinations_of_the_index_assemble():
    rows = section(read(METHODS / "index.md"), "Combining them").split("\n| algorithm")[1]
    texts = re.findall(r"`([^`]+)`", rows)
    assert len(texts) >= 7
    for text in texts:
        assert len(algorithm(text).parts) >= 2


def test_samplings_of_the_index_are_all_and_read():
    rows = section(read(METHODS / "index.md"), "Who is asked in a round")
    texts = re.findall(r"^\| `([^`]+)`(?: \(default\))? \| [^|]", rows, re.MULTILINE)
    read_ = [sampling.read(text) for text in texts if text != "sampling"]
    assert {each.name for each in read_} == set(sampling.SAMPLINGS)
    for each, row in zip(read_, rows.split("|---|---|---|\n")[1].splitlines(), strict=False):
        assert row.endswith(f"| {'by size' if each.weighting == 'size' else 'uniform'} |")
