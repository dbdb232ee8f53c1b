"""Tests of a study: ``study.significance.against("FedAvg", "worst_accuracy")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fedparity.certainty import Friedman, against, friedman, holm, mcnemar_of
from fedparity.errors import InputError, unknown
from fedparity.figures import by_label
from fedparity.figures.labelled import summaries
from fedparity.metrics import Split

if TYPE_CHECKING:
    from fedparity.studies.study import Study


class Significance:
    """Whether the algorithms of a study differ by more than chance, over its finished runs."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def against(
        self,
        reference: str,
        metric: str = "mean_accuracy",
        *,
        split: Split = "test",
        confidence: float = 0.95,
    ) -> pd.DataFrame:
        """Compare each algorithm and setting with a reference, seed by seed.

        See :func:`fedparity.certainty.against`: paired t and Wilcoxon tests, adjusted after Holm.
        """
        long, _ = summaries(self._study.labelled(), metric, split)
        return against(long, reference, metric, confidence)

    def friedman(
        self, metric: str = "mean_accuracy", *, split: Split = "test", confidence: float = 0.95
    ) -> Friedman:
        """Rank the algorithms in every seed and setting, with the critical difference."""
        runs = self._study.labelled(across_settings=True)
        long, higher = summaries(runs, metric, split)
        return friedman(long, metric, higher_is_better=higher, confidence=confidence)

    def mcnemar(self, method: str, reference: str, *, split: Split = "test") -> pd.DataFrame:
        """Test on each seed whether two algorithms are right on equally many examples.

        Columns ``seed``, ``only_method`` and ``only_reference`` (the examples on which one alone is
        right), and ``p``, adjusted after Holm over the seeds.
        """
        runs = by_label(self._study.labelled())
        for label in (method, reference):
            if label not in runs:
                raise unknown("algorithm of the study", label, runs)
        ours, theirs = (
            {result.settings["seed"]: result for result in runs[label]}
            for label in (method, reference)
        )
        rows = []
        for seed in sorted(ours.keys() & theirs.keys()):
            found = mcnemar_of(ours[seed].predictions, theirs[seed].predictions, split=split)
            both = {"only_method": found.only_first, "only_reference": found.only_second}
            rows.append({"seed": seed, **both, "p": found.pvalue})
        if not rows:
            raise InputError(f"'{method}' and '{reference}' have no finished run of one seed")
        table = pd.DataFrame(rows)
        return table.assign(p=holm(table["p"]))
