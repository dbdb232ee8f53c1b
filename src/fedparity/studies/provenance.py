"""Where the numbers in a directory come from: day, commit and versions of each session."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from fedparity.studies.places import place

FILE = "sessions.json"
UNKNOWN = "unknown"


class Session(NamedTuple):
    """When runs of a study were done, and by which code."""

    day: str
    commit: str
    """Of a checkout of fedparity, with ``+`` where its files were changed since; or ``unknown``."""
    fedparity: str
    torch: str


def now() -> Session:
    """Return the session of this moment."""
    day = datetime.now(UTC).date().isoformat()
    return Session(day, commit(), version("fedparity"), version("torch"))


def commit() -> str:
    """Return the commit of the checkout that this code is of."""
    git, package = shutil.which("git"), Path(__file__).parents[1]
    root = package.parents[1]
    if git is None or package.parent.name != "src" or not (root / ".git").exists():
        return UNKNOWN
    head = _said(git, root, "rev-parse", "--short", "HEAD").strip()
    changed = _said(git, root, "status", "--porcelain", "--", "src")
    return f"{head}{'+' if changed else ''}" if head else UNKNOWN


def _said(git: str, root: Path, *words: str) -> str:
    done = subprocess.run([git, *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def keep(out: Path) -> None:
    """Write down, in a study's directory, that runs are done now."""
    known, fresh = sessions(out), now()
    if fresh not in known:
        place(out / FILE, json.dumps([*known, fresh], indent=1))


def sessions(out: Path) -> list[Session]:
    """Return the sessions in which the runs of a study's directory were done."""
    try:
        return [Session(*each) for each in json.loads((out / FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []
