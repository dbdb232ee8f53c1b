"""The table of a study: numbers are checked by hand, names are data."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedparity as fp
from fedparity.metrics import SUMMARIES
from fedparity.studies.table import tabled
from fedparity.testing import unlike_clients

NASTY = "a_b | 50% & [x](http://y) <b>\n$\\end"
VALUES = {"base": [70.0, 72.0, 74.0, 76.0], NASTY: [75.0, 77.1, 79.2, 80.9]}


def runs(values=None, state="done"):
    """Return runs of two algorithms, one row each, as a study gives them."""
    values = VALUES if values is None else values
    return pd.DataFrame(
        [
            {"algorithm": a, "seed": s, "state": state, "mean_accuracy": v, "mean_loss": -v}
            for a, each in values.items()
            for s, v in enumerate(each)
        ]
    )


def table(**more):
    return tabled(runs(), ["algorithm"], SUMMARIES, reference="base", **more)


def test_numbers_are_those_of_scipy():
    found = table(metrics=["mean_accuracy"]).values.set_index("algorithm").loc[NASTY]
    a, b = np.array(VALUES[NASTY]), np.array(VALUES["base"])
    assert found["mean"] == a.mean()
    assert found["std"] == pytest.approx(a.std(ddof=1))
    assert found["p"] == pytest.approx(stats.ttest_rel(a, b).pvalue)  # one test: Holm adds nothing
    assert found["mark"] == "*"
    assert found["difference"] == pytest.approx(5.05)


def test_lower_is_worse_where_higher_is_better():
    found = tabled(runs(), ["algorithm"], SUMMARIES, reference=NASTY).values
    marks = found.set_index(["algorithm", "metric"])["mark"]
    assert marks["base", "mean_accuracy"] == "†"
    assert marks["base", "mean_loss"] == "†"  # -70 is a larger loss than -75


def test_a_setting_may_be_none_in_a_place_of_the_grid():
    both = [runs().assign(clip=pd.Series([clip] * 8, dtype=object)) for clip in (None, 1)]
    found = tabled(pd.concat(both), ["algorithm", "clip"], SUMMARIES, metrics=["mean_loss"])
    assert found.values["clip"].tolist() == ["None", "None", "1", "1"]
    assert set(found.values["seeds"]) == {4}


def test_holm_is_over_all_settings_of_the_grid():
    both = [runs().assign(lr=0.1), runs().assign(lr=0.2)]
    found = tabled(
        pd.concat(both), ["algorithm", "lr"], SUMMARIES, metrics=["mean_loss"], reference="base"
    )
    p = stats.ttest_rel(VALUES[NASTY], VALUES["base"]).pvalue
    assert found.values["p"].dropna().tolist() == pytest.approx([2 * p, 2 * p])


def test_names_are_shown_as_they_are():
    text = table().to_markdown()
    assert r"a\_b \| 50% \& \[x\](http\://y) \<b\> \$\\end" in text
    assert len({line.replace("\\|", "").count("|") for line in text.splitlines()[:4]}) == 1
    tex = table().to_latex()
    assert r"a\_b | 50\% \& [x](http://y) \textless{}b\textgreater{} \$\textbackslash{}end" in tex
    assert tex.count(r"\end{") == 1
    assert r"$78.1 \pm 2.6^{*}$" in tex  # the mean of the four, and their deviation 2.56
    assert "78.1 ± 2.6\\*" in text


def test_csv_is_read_again_with_every_digit():
    made = table()
    again = pd.read_csv(io.StringIO(made.to_csv()), keep_default_na=False, na_values=["nan", ""])
    assert again["mean"].tolist() == made.values["mean"].tolist()
    assert again["algorithm"].tolist() == made.values["algorithm"].tolist()


def test_a_diverged_run_leaves_no_mean_and_a_waiting_one_is_left_out():
    rows = runs()
    rows.loc[0, "state"], rows.loc[4, "state"] = "diverged", "waiting"
    found = tabled(rows, ["algorithm"], SUMMARIES, metrics=["mean_loss"]).values
    assert np.isnan(found["mean"][0])
    assert found["seeds"].tolist() == [4, 3]
    assert "--" in str(tabled(rows, ["algorithm"], SUMMARIES))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"metrics": ["mean_acuracy"]}, "did you mean 'mean_accuracy'"),
        ({"reference": "bass"}, "did you mean 'base'"),
        ({"confidence": 95}, "between 0 and 1"),
    ],
)
def test_wrong_names_are_told(more, told):
    with pytest.raises(fp.InputError, match=told):
        tabled(runs(), ["algorithm"], SUMMARIES, **more)


def test_a_study_gives_it(tmp_path):
    settings = {"model": "linear", "rounds": 1, "lstar": "none"}
    made = fp.compare(
        unlike_clients(), "linear", ["fedavg", "qffl"], tmp_path, seeds=2, rounds=1, lstar="none"
    )
    found = made.table(["mean_loss"], reference="fedavg", split="validation")
    assert found.values["mean"].tolist() == pytest.approx(
        made.by_run("validation").groupby("algorithm", sort=False)["mean_loss"].mean().tolist()
    )
    empty = fp.Study(settings, ["fedavg"], tmp_path / "new", federation=unlike_clients())
    with pytest.raises(fp.InputError, match="no finished run"):
        empty.table()
