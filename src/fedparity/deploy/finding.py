"""One line of a check."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """What was looked at, what was found, and whether that is fine."""

    what: str
    found: str
    fine: bool
