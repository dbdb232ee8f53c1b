"""The figures of a study: ``study.plot.curves().save("curves.pdf")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedparity import figures
from fedparity.figures import Figure, Labelled
from fedparity.fronts import frontier
from fedparity.metrics import Split

if TYPE_CHECKING:
    from fedparity.studies.study import Study


class Plot:
    """Figures of the finished runs of a study, as :mod:`fedparity.figures` draws them."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def curves(
        self, metric: str = "accuracy", over: figures.charts.Over = "mean", split: Split = "test"
    ) -> Figure:
        """Draw a metric over the rounds with bands over seeds."""
        return figures.curves(self._study.labelled(), metric, over, split)

    def clients(self, metric: str = "accuracy", split: Split = "test") -> Figure:
        """Draw how a metric is distributed over clients."""
        return figures.clients(self._study.labelled(), metric, split)

    def frontier(
        self,
        across: tuple[str, str] = ("mean_accuracy", "gap_variance"),
        reference: str | None = None,
        split: Split = "validation",
    ) -> Figure:
        """Draw what one summary costs in another, and the front."""
        runs = figures.by_label(self._study.labelled())
        return figures.front(frontier(runs, across=across, reference=reference, split=split))

    def payers(
        self, method: str, reference: str, metric: str = "accuracy", split: Split = "test"
    ) -> Figure:
        """Draw what each client gains or loses by one algorithm instead of another."""
        return figures.payers(self._study.labelled(), method, reference, metric, split)

    def ranks(self, metric: str = "mean_accuracy", split: Split = "test") -> Figure:
        """Draw the mean ranks of algorithms with the critical difference."""
        return figures.ranks(self._study.labelled(across_settings=True), metric, split)

    def labels(self) -> list[str]:
        """Return the labels under which figures show algorithms."""
        return list(dict.fromkeys(run.label for run in self._study.labelled()))


def finished(study: Study, across_settings: bool = False) -> list[Labelled]:
    """Return the finished runs of a study; see :meth:`Study.labelled`."""
    varied = [key for key, values in study.grid.items() if len(values) > 1]
    found = []
    for run, result in study.results():
        if result.diverged:
            continue
        place = [f"{key}={run.cell.chosen[key]}" for key in varied]
        label, block = [run.cell.label], [str(run.cell.seed)]
        (block if across_settings else label).extend(place)
        found.append(Labelled(", ".join(label), ", ".join(block), result))
    return found
