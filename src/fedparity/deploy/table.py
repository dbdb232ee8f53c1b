"""Flat tables in TOML, the language of Flower's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping

Value = str | int | float | bool


def toml(table: Mapping[str, Value]) -> str:
    """Return a flat table as TOML.

    >>> print(toml({"client-id": "va", "deadline": 60.0, "resume": False}), end="")
    client-id = "va"
    deadline = 60.0
    resume = false
    """
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
