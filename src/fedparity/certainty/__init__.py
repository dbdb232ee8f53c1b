"""How sure the numbers of a run are: intervals, and who certainly gains or pays."""

from fedparity.certainty.clients import FEW, GAINS, PAYS, UNTOLD, VERDICTS, client_certainty
from fedparity.certainty.levelling import Change, change
from fedparity.certainty.multiple import holm
from fedparity.certainty.predictions import mcnemar_of
from fedparity.certainty.runs import Friedman, against, friedman, over_seeds

__all__ = [
    "FEW",
    "GAINS",
    "PAYS",
    "UNTOLD",
    "VERDICTS",
    "Change",
    "Friedman",
    "against",
    "change",
    "client_certainty",
    "friedman",
    "holm",
    "mcnemar_of",
    "over_seeds",
]
