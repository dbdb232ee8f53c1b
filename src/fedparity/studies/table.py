"""The table of a study: mean and standard deviation over seeds, with marks of significance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedparity.certainty import against, over_seeds
from fedparity.errors import InputError, unknown
from fedparity.metrics import Summary
from fedparity.studies.markup import latex, markdown

USUAL = (
    "mean_accuracy",
    "worst_accuracy",
    "accuracy_variance",
    "mean_loss",
    "worst_loss",
    "gap_variance",
)
"""Summaries that are shown where none are named."""
BETTER, WORSE = "*", "†"
KEY = "algorithm"
ZERO = ""
"""The label of differences from the reference to itself."""
Text = Callable[[object], str]


@dataclass(frozen=True)
class Table:
    """Means over the seeds of a study, one row an algorithm and setting of the grid.

    Attributes
    ----------
    values
        One row a cell: ``algorithm``, the keys of the grid, ``metric``, ``seeds``, ``mean``,
        ``std``, the t interval ``low`` and ``high``, the paired ``difference`` from the reference,
        its ``p`` (t test, adjusted after Holm over the cells of the metric) and ``mark``: ``*``
        certainly better than the reference, ``†`` certainly worse. An algorithm with a run that
        failed or diverged has no mean.
    keys
        The columns that name a row.
    reference
        The algorithm the others are tested against, or None.
    confidence
        Of the intervals and marks.
    """

    values: pd.DataFrame
    keys: tuple[str, ...]
    reference: str | None
    confidence: float

    def __str__(self) -> str:
        return f"{self.cells().to_string(index=False)}\n{self.note}"

    @property
    def note(self) -> str:
        """What the numbers and marks say, in a sentence."""
        told = "Mean ± sample standard deviation over seeds."
        if self.reference is None:
            return told
        share = f"{100 * self.confidence:g} %"
        return (
            f"{told} {BETTER} better, {WORSE} worse than {self.reference}: paired t test, "
            f"{share} after Holm."
        )

    def cells(self) -> pd.DataFrame:
        """Return the table as texts: ``0.81 ± 0.02*``."""
        return self._written(str, " ± ", {BETTER: BETTER, WORSE: WORSE})

    def to_markdown(self) -> str:
        """Return a Markdown table; names are shown as they are."""
        shown = self._written(markdown, " ± ", {BETTER: rf"\{BETTER}", WORSE: WORSE})
        lines = [[markdown(name) for name in shown], ["---"] * len(shown.columns)]
        lines += shown.to_numpy().tolist()
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{rows}\n\n{markdown(self.note)}\n"

    def to_latex(self) -> str:
        """Return a ``tabular`` with the rules of ``booktabs``; names are printed as they are."""
        shown = self._written(latex, r" \pm ", {BETTER: "^{*}", WORSE: r"^{\dagger}"}, math="$")
        rows = [[latex(name) for name in shown], *shown.to_numpy().tolist()]
        head, *body = (f"{' & '.join(row)} \\\\" for row in rows)
        form = "l" * len(self.keys) + "r" * (len(shown.columns) - len(self.keys))
        note = latex(self.note).replace("±", r"$\pm$").replace(WORSE, r"$^{\dagger}$")
        lines = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule", *body]
        lines += [r"\bottomrule", r"\end{tabular}", "", note, ""]
        return "\n".join(lines)

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """Write :attr:`values` as CSV to a file, or return it."""
        if path is None:
            return str(self.values.to_csv(index=False))
        self.values.to_csv(path, index=False)
        return None

    def _written(
        self, text: Text, between: str, marks: Mapping[str, str], math: str = ""
    ) -> pd.DataFrame:
        """Return one row of texts an algorithm and setting."""
        rows = []
        for place, cells in self.values.groupby(list(self.keys), sort=False, dropna=False):
            row = dict(zip(self.keys, map(text, place), strict=True))
            row["seeds"] = text(int(cells["seeds"].max()))
            for cell in cells.to_dict("records"):
                row[cell["metric"]] = _cell(cell, between, marks, math)
            rows.append(row)
        return pd.DataFrame(rows)


def _cell(cell: Mapping[Any, Any], between: str, marks: Mapping[str, str], math: str) -> str:
    mean, std = rounded(cell["mean"], cell["std"])
    if not mean:
        return "--"
    spread = f"{between}{std}" if std else ""
    return f"{math}{mean}{spread}{marks.get(cell['mark'], '')}{math}"


def rounded(mean: float, std: float) -> tuple[str, str]:
    """Return a mean to the place of the second digit of its standard deviation, and that.

    >>> rounded(81.2345, 0.1234), rounded(0.5, float("nan"))
    (('81.23', '0.12'), ('0.5', ''))
    """
    if not math.isfinite(mean):
        return "", ""
    if not math.isfinite(std):
        return f"{mean:.4g}", ""
    if std == 0:
        return f"{mean:.4g}", "0"
    places = max(0, 1 - math.floor(math.log10(std)))
    if places > 8 or abs(mean) >= 1e7:
        return f"{mean:.4g}", f"{std:.2g}"
    return f"{mean:.{places}f}", f"{std:.{places}f}"


def tabled(
    runs: pd.DataFrame,
    keys: Sequence[str],
    meanings: Mapping[str, Summary],
    *,
    metrics: Sequence[str] | None = None,
    reference: str | None = None,
    confidence: float = 0.95,
) -> Table:
    """Return the table of a study's runs, one row a run as of ``Study.by_run``.

    Runs that are still to be done are left out; runs that failed or diverged have no value.
    """
    known = [str(name) for name in runs if name in meanings]
    names = metrics or [name for name in USUAL if name in known and runs[name].notna().any()]
    for name in names:
        if name not in known:
            raise unknown("summary", name, known)
    labels = list(dict.fromkeys(runs[KEY]))
    if reference is not None and reference not in labels:
        raise unknown("reference", reference, labels)
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}: between 0 and 1, such as 0.95")
    done = runs[~runs["state"].isin(("waiting", "begun"))]
    if done.empty or not names:
        raise InputError("the study has no finished run: run it first")
    texts = done.assign(**{key: done[key].map(str) for key in keys})
    texts["row"] = texts.groupby(list(keys), sort=False).ngroup()
    values = texts[list(names)].where(texts["state"].eq("done"))
    wide = pd.concat([texts[["row", "seed", *keys]], values], axis=1)
    long = wide.melt(["row", "seed", *keys], list(names), "metric", "value")
    found = over_seeds(long.rename(columns={"row": "method"}), confidence)
    found = found.rename(columns={"method": "row"})
    tests = pd.concat(_tests(long, keys, meanings, names, reference, confidence))
    found = found.merge(tests, on=["row", "metric"], how="left").fillna({"mark": ""})
    rows = texts[["row", *keys]].drop_duplicates()
    found = rows.merge(found, on="row").drop(columns="row")
    return Table(found, tuple(keys), reference, confidence)


def _tests(
    long: pd.DataFrame,
    keys: Sequence[str],
    meanings: Mapping[str, Summary],
    names: Sequence[str],
    reference: str | None,
    confidence: float,
) -> Iterator[pd.DataFrame]:
    """Yield a test of each row against the reference in the same place of the grid."""
    yield pd.DataFrame(
        {"row": pd.Series(dtype="int64"), "metric": pd.Series(dtype="object")},
        columns=["row", "metric", "difference", "p", "mark"],
    )
    if reference is None:
        return
    place = [*(key for key in keys if key != KEY), "seed", "metric"]
    base = long[long[KEY] == reference].set_index(place)["value"].rename("base")
    others = long[long[KEY] != reference].join(base, on=place)
    others["value"] -= others["base"]
    for name in names:
        some = others[others["metric"] == name]
        if some["value"].notna().sum() == 0:
            continue
        rows = some.assign(method=some["row"])[["method", "seed", "metric", "value"]]
        zero = rows.drop_duplicates("seed").assign(method=ZERO, value=0.0)
        found = against(pd.concat([rows, zero]), ZERO, name, confidence)
        sign = {"higher": 1, "lower": -1, None: 0}[meanings[name].better]
        good = np.sign(sign * found["difference"]).where(found["certain"], 0)
        yield pd.DataFrame(
            {
                "row": found["method"].astype("int64"),
                "metric": name,
                "difference": found["difference"],
                "p": found["p_t"],
                "mark": good.map({1.0: BETTER, -1.0: WORSE, 0.0: ""}),
            }
        )
