"""The grammar of contracts: one clause a line, read strictly and never executed.

``max_gap <= 0.1 @ 95%``, and ``nobody worse than alone by more than 0.02 @ 95%``, which is the
same of losses. Without a confidence it is 95 %.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import yaml

from fedparity.errors import InputError

LARGEST = 64 * 1024
"""Bytes of a contract."""
MOST = 100
"""Clauses of a contract."""
NUMBER = r"(?P<limit>-?\d{1,12}(?:\.\d{1,12})?)"
SURE = r"(?:\s*@\s*(?P<sure>\d{1,2}(?:\.\d{1,4})?)\s*%)?"
FORMS = (
    re.compile(rf"max_gap\s*<=\s*{NUMBER}{SURE}"),
    re.compile(rf"nobody worse than alone by more than {NUMBER}{SURE}"),
)
KNOWN = "'max_gap <= 0.1 @ 95%' or 'nobody worse than alone by more than 0.02'"


class Clause(NamedTuple):
    """No client's loss gap is above the limit, with this confidence."""

    text: str
    limit: float
    confidence: float


def parse_clause(text: str) -> Clause:
    """Read one clause.

    Examples
    --------
    >>> parse_clause("max_gap <= 0.1 @ 90%")
    Clause(text='max_gap <= 0.1 @ 90%', limit=0.1, confidence=0.9)
    """
    plain = " ".join(text.split())
    for form in FORMS:
        found = form.fullmatch(plain)
        if found:
            sure = float(found["sure"] or 95) / 100
            if not 0.5 <= sure < 1:
                raise InputError(f"clause '{plain}': a confidence is 50% or more and below 100%")
            return Clause(plain, float(found["limit"]), round(sure, 6))
    raise InputError(f"a contract has no clause '{plain[:80]}': write {KNOWN}")


def read_contract(file: Path) -> tuple[Clause, ...]:
    """Read a file ``clauses: [...]`` of YAML."""
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(f"{file} has more than {LARGEST} bytes: no contract is so long")
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict) or list(found) != ["clauses"]:
        raise InputError(f"{file}: a contract is one list 'clauses:', a clause a line")
    clauses = found["clauses"]
    if not isinstance(clauses, list) or not 0 < len(clauses) <= MOST:
        raise InputError(f"{file}: 'clauses' is a list of 1 to {MOST} clauses")
    return tuple(parse_clause(each) if isinstance(each, str) else _odd(each) for each in clauses)


def _odd(clause: object) -> Clause:
    raise InputError(f"a clause is a text, not {str(clause)[:80]!r}: write {KNOWN}")
