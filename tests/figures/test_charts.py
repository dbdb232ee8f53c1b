"""Figures: their numbers, their formats, and names that are only names."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedparity as fp
from fedparity import figures
from fedparity.figures.charts import gains

NASTY = 'a.b[0] <script>alert("x")</script>'
ACCURACY = {
    "base": [[0.5, 0.6], [0.52, 0.61], [0.54, 0.63]],
    NASTY: [[0.7, 0.59], [0.73, 0.62], [0.72, 0.62]],
    "third": [[0.4, 0.4], [0.3, 0.3], [0.2, 0.2]],
}


def result(accuracies, seed):
    """Return a run of two clients and two rounds."""
    names = ["x.y", "z"]
    about = {"client": names, **{f"n_{s}": 10 for s in ("train", "validation", "test")}}
    numbers = {
        f"{s}_{name}": value
        for s in ("validation", "test")
        for name, value in (("accuracy", accuracies), ("loss", 1 - np.array(accuracies)))
    }
    history = pd.DataFrame(
        [
            (r, name, "test", "global", "accuracy", r * value / 2, 10)
            for r in (1, 2)
            for name, value in zip(names, accuracies, strict=True)
        ],
        columns=["round", "client", "split", "model", "metric", "value", "n"],
    )
    settings = {"seed": seed, "record": {}, "algorithm": "any"}
    return fp.Result(pd.DataFrame({**about, **numbers}), history, settings, rounds=2)


RUNS = [
    figures.Labelled(label, str(seed), result(values, seed))
    for label, each in ACCURACY.items()
    for seed, values in enumerate(each)
]


def test_what_a_client_gains_is_paired_by_seed_and_certain_after_holm():
    found = gains(RUNS, NASTY, "base", "accuracy", "test").set_index("client")
    apart = np.array(ACCURACY[NASTY]) - np.array(ACCURACY["base"])
    assert found["gain"].to_dict() == pytest.approx(
        dict(zip(["x.y", "z"], apart.mean(0), strict=False))
    )
    ends = stats.ttest_1samp(apart[:, 0], 0).confidence_interval()
    assert found.loc["x.y", "low"] == pytest.approx(ends.low)
    assert found["verdict"].to_dict() == {"x.y": "certainly gains", "z": "cannot be told"}
    back = gains(RUNS, "base", NASTY, "accuracy", "test").set_index("client")
    assert back.loc["x.y", "verdict"] == "certainly pays"
    loss = gains(RUNS, NASTY, "base", "loss", "test").set_index("client")
    assert loss["gain"].to_dict() == pytest.approx(found["gain"].to_dict())  # lower is better


def charts():
    by_label = figures.by_label(RUNS)
    return {
        "curves": figures.curves(RUNS),
        "clients": figures.clients(RUNS),
        "payers": figures.payers(RUNS, NASTY, "base"),
        "ranks": figures.ranks(RUNS),
        "front": figures.front(fp.frontier(by_label, across=("mean_accuracy", "mean_loss"))),
    }


def test_a_figure_is_a_file_of_each_format_and_a_name_is_no_markup(tmp_path):
    pytest.importorskip("vl_convert")
    for name, figure in charts().items():
        drawn = figure.save(tmp_path / f"{name}.svg").read_text()
        assert drawn.startswith("<svg"), name
        assert "<script" not in drawn
    assert "a.b[0] &lt;script&gt;" in (tmp_path / "clients.svg").read_text()
    assert figure.save(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert figure.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part"))


def test_the_band_of_curves_is_that_of_the_seeds():
    pytest.importorskip("altair")
    table = figures.curves(RUNS).chart.layer[1].data.set_index(["label", "round"])
    means = np.mean(ACCURACY["base"], axis=1)
    assert table.loc[("base", 2), "mean"] == pytest.approx(means.mean())
    half = stats.t.ppf(0.975, 2) * means.std(ddof=1) / np.sqrt(3)
    assert table.loc[("base", 2), "high"] == pytest.approx(means.mean() + half)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: figures.curves(RUNS, "acuracy"), "did you mean 'accuracy'"),
        (lambda: figures.payers(RUNS, "thirds", "base"), "did you mean 'third'"),
        (lambda: figures.payers(RUNS, "base", "base"), "against itself"),
        (lambda: figures.clients(RUNS, "f1"), "has no test_f1"),
        (lambda: figures.ranks(RUNS[:6]), "needs 3 methods"),
        (lambda: figures.clients([]), "no finished run"),
        (lambda: figures.curves(RUNS).save("a.gif"), "format of a figure 'gif'"),
    ],
)
def test_what_cannot_be_drawn_is_told(make, told):
    pytest.importorskip("altair")
    with pytest.raises(fp.InputError, match=told):
        make()


def test_without_the_extra_its_name_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(fp.InputError, match=r"pip install 'fedparity\[figures\]'"):
        figures.clients(RUNS)
