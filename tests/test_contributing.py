"""The pages for contributors: what they show is what happens, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedparity
from pages import run, same

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
SOURCE = Path(fedparity.__file__).parent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_snippets_of_a_page_print_what_is_shown(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for shown, printed in run(page):
        assert same(shown, printed), f"{page.name} shows\n{shown}\nbut it prints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_are_there(page):
    for named in re.findall(
        r"`((?:tests|benchmarks|examples|src)/[\w./]+)`", page.read_text("utf-8")
    ):
        assert (ROOT / named).exists(), named


def test_the_architecture_names_every_package():
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^ *([a-z_]+)/", text, re.MULTILINE))
    packages = {folder.parent.name for folder in SOURCE.glob("*/__init__.py")}
    assert packages <= named
