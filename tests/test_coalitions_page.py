"""The page on coalitions, aims and frontiers prints what it shows."""

from __future__ import annotations

from pathlib import Path

from pages import run, same

PAGE = Path(__file__).parent.parent / "docs" / "coalitions.md"


def test_the_snippets_of_the_page_print_what_is_shown(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for shown, printed in run(PAGE):
        assert same(shown, printed), f"the page shows\n{shown}\nbut it prints\n{printed}"
