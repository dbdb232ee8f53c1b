"""How sure the numbers of a run are: intervals, and who certainly gains or pays."""

from fedparity.certainty.clients import FEW, GAINS, PAYS, UNTOLD, VERDICTS, client_certainty

__all__ = ["FEW", "GAINS", "PAYS", "UNTOLD", "VERDICTS", "client_certainty"]
