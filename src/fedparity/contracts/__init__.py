"""Contracts: what a run must keep to for each of its clients, judged as holding, broken or open."""

from fedparity.contracts.clauses import Clause, parse_clause, read_contract
from fedparity.contracts.verdicts import Verdict, judge

__all__ = ["Clause", "Verdict", "judge", "parse_clause", "read_contract"]
