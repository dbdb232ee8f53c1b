"""Contracts: what a run must keep to for each of its clients, judged as holding, broken or open."""

from fedparity.contracts.clauses import (
    Clause,
    Limit,
    NotLevelledDown,
    parse_clause,
    read_contract,
)
from fedparity.contracts.verdicts import Verdict, judge

__all__ = [
    "Clause",
    "Limit",
    "NotLevelledDown",
    "Verdict",
    "judge",
    "parse_clause",
    "read_contract",
]
