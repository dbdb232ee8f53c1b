"""How sure a comparison over seeds is: means, paired tests, ranks.

All functions take a table of runs in the long form: columns ``method``, ``seed``, ``metric`` and
``value``, one row a run and metric. Runs of one seed are paired.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.certainty.means import student
from fedparity.certainty.multiple import holm
from fedparity.errors import InputError, unknown

COLUMNS = ("method", "seed", "metric", "value")


class Friedman(NamedTuple):
    """Whether methods differ in their ranks over blocks, and by how much they must."""

    ranks: pd.Series[float]
    """Mean rank of each method, 1 the best."""
    statistic: float
    pvalue: float
    critical_difference: float
    """Two methods whose mean ranks differ by less cannot be told apart (Nemenyi)."""
    blocks: int


def over_seeds(runs: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Return mean, sample standard deviation and t interval by method and metric.

    Columns ``method``, ``metric``, ``seeds``, ``mean``, ``std``, ``low`` and ``high``. A method
    with a run that failed (a value that is not finite) has the mean of none of its runs: NaN.
    """
    _check(runs)
    cells = runs.groupby(["method", "metric"], sort=False, observed=True)["value"]
    table = pd.DataFrame(
        {
            "seeds": cells.size(),
            "mean": cells.agg(lambda v: v.mean(skipna=False)),
            "std": cells.agg(lambda v: v.std(skipna=False)),
        }
    )
    mean, std, n = (table[name].to_numpy(np.float64) for name in ("mean", "std", "seeds"))
    low, high = student(mean, std / np.sqrt(n), n, confidence)
    return table.assign(low=low, high=high).reset_index()


def against(
    runs: pd.DataFrame, baseline: str, metric: str, confidence: float = 0.95
) -> pd.DataFrame:
    """Compare each method with a baseline on the seeds that both have.

    Columns ``method``, ``seeds``, ``difference`` (method minus baseline) with its t interval
    ``low`` and ``high``, ``p_t`` and ``p_wilcoxon`` of paired tests, each adjusted after Holm over
    the methods, and ``certain``: whether ``p_t`` is at most ``1 - confidence``.

    Notes
    -----
    Wilcoxon's test cannot be below ``2^{1-R}`` with R seeds: 0.0625 with five.
    """
    from scipy import stats  # slow to import, so only when asked for

    table = _wide(runs, metric)
    if baseline not in table:
        raise unknown("method", baseline, [str(name) for name in table])
    rows = []
    for method in table.columns.drop(baseline):
        both = table[[method, baseline]].dropna()
        apart = (both[method] - both[baseline]).to_numpy(np.float64)
        row: dict[str, object] = {"method": method, "seeds": len(apart)}
        row["difference"] = apart.mean() if len(apart) else np.nan
        row |= dict.fromkeys(("low", "high", "p_t", "p_wilcoxon"), np.nan)
        if len(apart) > 1 and np.ptp(apart) > 0:
            t = stats.ttest_1samp(apart, 0)
            ends = t.confidence_interval(confidence)
            row |= {"low": ends.low, "high": ends.high, "p_t": t.pvalue}
            row["p_wilcoxon"] = stats.wilcoxon(apart).pvalue
        rows.append(row)
    columns = ["method", "seeds", "difference", "low", "high", "p_t", "p_wilcoxon"]
    found = pd.DataFrame(rows, columns=columns)
    for column in ("p_t", "p_wilcoxon"):
        found[column] = holm(found[column])
    return found.assign(certain=found["p_t"] <= 1 - confidence)


def friedman(
    runs: pd.DataFrame, metric: str, *, higher_is_better: bool = True, confidence: float = 0.95
) -> Friedman:
    """Rank the methods seed by seed, test whether they differ, and say how far apart is certain.

    The critical difference is ``q sqrt(M (M + 1) / (6 R))`` for M methods over R seeds, with q of
    the studentized range divided by ``sqrt(2)``. Seeds that a method lacks are left out.

    References
    ----------
    J. Demsar: Statistical comparisons of classifiers over multiple data sets. Journal of Machine
    Learning Research 7 (2006), 1-30.
    """
    from scipy import stats

    table = _wide(runs, metric).dropna()
    blocks, methods = table.shape
    if methods < 3 or blocks < 2:
        raise InputError(
            f"Friedman's test needs 3 methods and 2 seeds that all have, and there are {methods} "
            f"and {blocks}: compare two methods with against()"
        )
    ranks = table.rank(axis=1, ascending=not higher_is_better).mean()
    test = stats.friedmanchisquare(*(table[name] for name in table))
    q = stats.studentized_range.ppf(confidence, methods, np.inf) / np.sqrt(2)
    apart = float(q * np.sqrt(methods * (methods + 1) / (6 * blocks)))
    return Friedman(
        ranks.sort_values(), float(test.statistic), float(test.pvalue), apart, int(blocks)
    )


def _wide(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return one row a seed and one column a method; a run that failed is missing."""
    _check(runs)
    rows = runs[runs["metric"] == metric]
    if rows.empty:
        raise unknown("metric", metric, sorted(map(str, runs["metric"].unique())))
    values: npt.NDArray[np.float64] = rows["value"].to_numpy(np.float64)
    finite = rows.assign(value=np.where(np.isfinite(values), values, np.nan))
    return finite.pivot(index="seed", columns="method", values="value")


def _check(runs: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in runs]
    if missing:
        raise InputError(f"a table of runs needs the columns {', '.join(missing)}")
    twice = runs[runs.duplicated(["method", "seed", "metric"])]
    if not twice.empty:
        row = twice.iloc[0]
        raise InputError(
            f"{row['method']} has two values of {row['metric']} for seed {row['seed']}: keep one"
        )
