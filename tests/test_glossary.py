"""One word, one meaning: verbs that the glossary gives to one place stand nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedparity
from fedparity.engines.lane import Lane

SOURCE = Path(fedparity.__file__).parent
GLOSSARY = SOURCE.parent.parent / "docs" / "contributing" / "glossary.md"
LANES = {"engines/lane.py", "engines/reference/lane.py", "engines/stacked/measuring.py"}


def defined(word: str) -> set[str]:
    """Return the files in which a function or class is called by a word, or begins with it."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = node.name.lower().strip("_")
                if name == word or name.startswith((f"{word}_", f"{word}d_")) or name == f"{word}d":
                    found.add(file.relative_to(SOURCE).as_posix())
    return found


@pytest.mark.parametrize(("verb", "files"), [("measure", LANES), ("descend", {"engines/lane.py"})])
def test_the_verbs_of_a_lane_are_of_lanes_alone(verb, files):
    assert hasattr(Lane, verb)
    assert defined(verb) == files


def test_words_stand_in_the_glossary_once():
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    words = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert {"measure", "descend", "evaluate", "probe", "fact", "workspace"} <= set(words)
