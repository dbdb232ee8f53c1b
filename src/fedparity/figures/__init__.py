"""Figures for papers: curves, clients, fronts, who pays, ranks; no browser is needed."""

from fedparity.figures.charts import clients, curves, front, payers, ranks
from fedparity.figures.figure import FORMATS, Figure
from fedparity.figures.labelled import Labelled, by_label, runs_of

__all__ = [
    "FORMATS",
    "Figure",
    "Labelled",
    "by_label",
    "clients",
    "curves",
    "front",
    "payers",
    "ranks",
    "runs_of",
]
