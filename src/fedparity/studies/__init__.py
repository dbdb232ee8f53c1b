"""Studies: many runs that answer one question, and how sure the answer is."""

from fedparity.studies.comparison import compare
from fedparity.studies.study import Study
from fedparity.studies.table import Table

__all__ = ["Study", "Table", "compare"]
