"""Studies: many runs that answer one question, and how sure the answer is."""

from fedparity.studies.comparison import compare
from fedparity.studies.study import Study

__all__ = ["Study", "compare"]
