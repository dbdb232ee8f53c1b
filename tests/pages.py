"""Pages whose snippets are run: each must print what the page shows behind it."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def same(shown: str, printed: str) -> bool:
    """Tell whether two texts agree in words, and in numbers but for the last digit shown."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True)
    return all(
        abs(float(one[0]) - float(two[0])) <= 1.5 * 10 ** -len((one[1] or ".")[1:]) * bool(one[1])
        for one, two in pairs
    )


def run(page: Path) -> list[tuple[str, str]]:
    """Run the Python snippets of a page as one program; return what is shown and what is printed.

    A text block behind a snippet is what the snippet shows.
    """
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    module, found = ModuleType(page.stem), []
    with pytest.MonkeyPatch.context() as patched:
        # Dataclasses look up where they are made. Other modules that a page imports stay.
        patched.setitem(sys.modules, page.stem, module)
        for place, (kind, code) in enumerate(blocks):
            if kind != "python":
                continue
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, page.name, "exec"), vars(module))  # noqa: S102 - a page of ours
            behind = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            found.append((behind[1] if behind[0] == "text" else "", printed.getvalue()))
    return found
