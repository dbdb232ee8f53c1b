"""The page on studies is true: its program is run, its file is the same study."""

from __future__ import annotations

import re
from pathlib import Path

import fedparity as fp
from fedparity.studies.packaged import listed
from pages import BLOCK, run

PAGE = Path(__file__).parent.parent / "docs" / "studies.md"


def test_the_page_runs_and_its_file_is_its_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(PAGE)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    file = next(text for kind, text in blocks if kind == "yaml")
    Path("study.yaml").write_text(file, encoding="utf-8")
    written, made = fp.Study.load("study.yaml"), fp.Study.load("runs/study")
    assert [each.address for each in written.runs] == [each.address for each in made.runs]


def test_packaged_studies_of_the_page_are_there():
    names = re.findall(r"fedparity study (\w+) --quick", PAGE.read_text(encoding="utf-8"))
    assert names
    assert set(names) <= set(listed())
