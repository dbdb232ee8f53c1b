"""The grammar of contracts: one clause a line, read strictly and never executed.

``max_gap <= 0.1 @ 95%``; ``nobody worse than alone by more than 0.02 @ 95%``, which is the same of
losses; and ``not levelled_down against fedavg @ 95%``. Without a confidence it is 95 %.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import yaml

from fedparity.errors import InputError
from fedparity.spec import parse

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
AGAINST = re.compile(rf"not levelled_down against (?P<against>[^@%]{{1,200}}?){SURE}")
KNOWN = (
    "'max_gap <= 0.1 @ 95%', 'nobody worse than alone by more than 0.02' or "
    "'not levelled_down against fedavg'"
)


class Limit(NamedTuple):
    """No client's loss gap is above the limit, with this confidence."""

    text: str
    limit: float
    confidence: float


class NotLevelledDown(NamedTuple):
    """Gaps are not closer than under another algorithm only because some are served worse."""

    text: str
    against: str
    confidence: float


Clause = Limit | NotLevelledDown


def parse_clause(text: str) -> Clause:
    """Read one clause.

    Examples
    --------
    >>> parse_clause("max_gap <= 0.1 @ 90%")
    Limit(text='max_gap <= 0.1 @ 90%', limit=0.1, confidence=0.9)
    >>> parse_clause("not levelled_down against qffl(q=2)").against
    'qffl(q=2)'
    """
    plain = " ".join(text.split())
    for form in FORMS:
        if found := form.fullmatch(plain):
            return Limit(plain, float(found["limit"]), _confidence(plain, found))
    if found := AGAINST.fullmatch(plain):
        parse(found["against"])
        return NotLevelledDown(plain, found["against"], _confidence(plain, found))
    raise InputError(f"a contract has no clause '{plain[:80]}': write {KNOWN}")


def _confidence(clause: str, found: re.Match[str]) -> float:
    sure = float(found["sure"] or 95) / 100
    if not 0.5 <= sure < 1:
        raise InputError(f"clause '{clause}': a confidence is 50% or more and below 100%")
    return round(sure, 6)


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
