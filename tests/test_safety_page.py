"""What the page on files of strangers shows is what happens."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from fedparity.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "safety.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
NETS = """
from torch import nn

def small(shape, outputs):
    return nn.Linear(shape[0], outputs)
"""


def test_the_commands_do_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("mynets.py").write_text(NETS)
    ended = []
    for kind, text in BLOCKS:
        if kind == "yaml":
            Path(text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif kind == "console":
            for line in text.splitlines():
                with pytest.raises(SystemExit) as end:
                    main(shlex.split(line.removeprefix("$ "))[1:])
                ended.append((end.value.code, capsys.readouterr().err))
        elif kind == "text":
            assert ended[-1] == (2, text)
        else:
            assert kind == "python"
            Path("shown.py").write_text(text)
            runpy.run_path("shown.py")
    assert [code for code, _ in ended] == [2, 0, 0]
    assert not Path("gone").exists()
    monkeypatch.delitem(sys.modules, "mynets")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
