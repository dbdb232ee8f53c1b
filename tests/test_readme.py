"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedparity.catalogue.methods import listing
from fedparity.cli import main
from pages import same

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line.removeprefix("$ ")
    for kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("$ fedparity ")
]
MARK = "-- end of a block --"


def test_the_python_snippets_print_what_is_shown(tmp_path):
    script = "".join(f"{text}\nprint({MARK!r})\n" for kind, text in BLOCKS if kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(MARK)[:-1]
    kinds = [kind for kind, _ in BLOCKS]
    places = [place for place, kind in enumerate(kinds) if kind == "python"]
    shown = [BLOCKS[p + 1][1] if kinds[p + 1] == "text" else "" for p in places]
    for one, two in zip(shown, printed, strict=True):
        assert same(one, two), f"the README shows\n{one}\nbut it prints\n{two}"


def test_the_commands_work_and_print_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    written = next(text for kind, text in BLOCKS if kind == "yaml")
    Path(written.partition("\n")[0].removeprefix("# ")).write_text(written)
    printed = {}
    for command in COMMANDS:
        with pytest.raises(SystemExit) as end:
            main(shlex.split(command)[1:])
        printed[command], error = capsys.readouterr()
        assert end.value.code == 0, error
    kinds = [kind for kind, _ in BLOCKS]
    shown = next(
        text
        for before, (kind, text) in zip(kinds, BLOCKS[1:], strict=False)
        if (before, kind) == ("console", "text")
    )
    compared = next(text for command, text in printed.items() if " compare " in command)
    for line in filter(None, shown.splitlines()):
        assert any(same(line, other) for other in compared.splitlines()), line


def test_the_table_of_methods_is_up_to_date():
    shown = README.partition("<!-- methods: begin -->\n")[2].partition("\n<!-- methods: end -->")[0]
    assert shown == listing("algorithms").markdown(), (
        "replace the table by the output of: fedparity list algorithms --markdown"
    )


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_exist(target):
    assert f"$ make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        file, _, heading = target.partition("#")
        assert (ROOT / file).exists(), target
        text = (ROOT / file).read_text(encoding="utf-8") if heading else ""
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert not heading or heading in [h.lower().replace(" ", "-") for h in headings], target


def test_numbers_agree_but_for_the_last_digit():
    assert same("a 1.20 b", "a 1.21 b")
    assert not same("a 1.20 b", "a 1.23 b")
    assert not same("a 12 b", "a 13 b")
    assert not same("a 1.2 b", "c 1.2 b")
