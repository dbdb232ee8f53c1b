"""Methods compared over seeds."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedparity.certainty.runs import against, friedman, over_seeds
from fedparity.errors import InputError

VALUES = {
    "fedavg": [80.0, 82, 81, 83, 79],
    "better": [83.0, 85.5, 84, 86, 82.5],
    "same": [80.1, 81.9, 81.2, 82.7, 79.1],
}


def runs(values=VALUES):
    return pd.DataFrame(
        [(m, seed, "acc", v) for m, found in values.items() for seed, v in enumerate(found)],
        columns=["method", "seed", "metric", "value"],
    )


def test_mean_and_interval_over_seeds():
    row = over_seeds(runs()).set_index("method").loc["fedavg"]
    # mean 81, squares 1 + 1 + 0 + 4 + 4 = 10, 10 / 4 = 2.5; t(4) = 2.776
    assert row["mean"] == 81
    assert row["std"] == pytest.approx(2.5**0.5)
    assert row["high"] - 81 == pytest.approx(2.776 * (2.5 / 5) ** 0.5, abs=1e-3)


def test_a_failed_run_is_not_averaged_away():
    values = {**VALUES, "same": [80.1, np.nan, 81.2, 82.7, 79.1]}
    table = over_seeds(runs(values)).set_index("method")
    assert np.isnan(table.loc["same", "mean"])
    assert against(runs(values), "fedavg", "acc").set_index("method").loc["same", "seeds"] == 4


def test_paired_tests_are_scipys_after_holm():
    found = against(runs(), "fedavg", "acc").set_index("method")
    raw = [stats.ttest_rel(VALUES[m], VALUES["fedavg"]).pvalue for m in ("better", "same")]
    assert found.loc["better", "p_t"] == pytest.approx(2 * raw[0])
    assert found.loc["same", "p_t"] == pytest.approx(raw[1])
    assert found.loc["better", "certain"]
    assert not found.loc["same", "certain"]
    assert found.loc["better", "p_wilcoxon"] == pytest.approx(2 * 0.0625)  # the least of five seeds


def test_the_critical_difference_is_that_of_the_tables():
    found = friedman(runs(), "acc")
    # Demsar's table 5: q = 2.343 for three methods at 5 %; sqrt(3 * 4 / (6 * 5)) = 0.6325
    assert found.critical_difference == pytest.approx(2.343 * 0.4**0.5, abs=2e-3)
    assert found.ranks["better"] == 1
    assert list(friedman(runs(), "acc", higher_is_better=False).ranks)[-1] == 3
    assert found.pvalue == pytest.approx(stats.friedmanchisquare(*VALUES.values()).pvalue)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="3 methods and 2 seeds"):
        friedman(runs({"a": [1, 2], "b": [2, 3]}), "acc")
    with pytest.raises(InputError, match="unknown metric 'auc'"):
        against(runs(), "fedavg", "auc")
    with pytest.raises(InputError, match="unknown method 'fedprox'"):
        against(runs(), "fedprox", "acc")
    with pytest.raises(InputError, match="two values of acc for seed 0"):
        over_seeds(pd.concat([runs(), runs()]))
    with pytest.raises(InputError, match="needs the columns seed"):
        over_seeds(runs().drop(columns="seed"))
