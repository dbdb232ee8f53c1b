"""Tests between the algorithms of a study, against scipy on its table of runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedparity as fp

SETTINGS = {"model": "linear", "rounds": 2, "lstar": "none", "solver": {"lr": 0.5}}
METRIC = "mean_loss"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(240, 3))
    y = (x[:, 0] + draws.normal(size=240) > 0).astype(int)
    data = fp.Federation.from_arrays(x, y, np.repeat(["a", "b"], 120), seed=0)
    algorithms = {"plain": "fedavg", "q": "qffl(q=2)", "prox": "fedprox(mu=5)"}
    out = tmp_path_factory.mktemp("significance")
    return fp.Study(SETTINGS, algorithms, out, federation=data, seeds=3).run()


def test_pairs_of_seeds_are_tested_as_scipy_does(study):
    wide = study.by_run().pivot(index="seed", columns="algorithm", values=METRIC)
    found = study.significance.against("plain", METRIC).set_index("method")
    p = {name: stats.ttest_rel(wide[name], wide["plain"]).pvalue for name in found.index}
    low, high = sorted(p, key=p.get)  # Holm with two tests doubles the smaller one
    assert found.loc[low, "p_t"] == pytest.approx(min(1, 2 * p[low]))
    assert found.loc[high, "p_t"] == pytest.approx(min(1, max(2 * p[low], p[high])))
    assert found.loc["q", "p_wilcoxon"] >= stats.wilcoxon(wide["q"], wide["plain"]).pvalue


def test_ranks_are_over_seeds_and_the_lower_loss_is_better(study):
    wide = study.by_run().pivot(index="seed", columns="algorithm", values=METRIC)
    found = study.significance.friedman(METRIC)
    assert found.ranks.to_dict() == wide.rank(axis=1).mean().to_dict()
    assert found.blocks == 3


def test_mcnemar_is_by_seed_on_the_predictions(study):
    found = study.significance.mcnemar("q", "plain")
    assert list(found["seed"]) == [0, 1, 2]
    runs = {(run.cell.label, run.cell.seed): result for run, result in study.results()}

    def right(label):
        rows = runs[label, 1].predictions
        rows = rows[(rows["split"] == "test") & (rows["model"] == "global")]
        return rows[["output_0", "output_1"]].to_numpy().argmax(1) == rows["target"]

    ours, theirs = right("q"), right("plain")
    assert found.loc[1, "only_method"] == (ours & ~theirs).sum()
    assert found.loc[1, "only_reference"] == (theirs & ~ours).sum()
    with pytest.raises(fp.InputError, match="did you mean 'plain'"):
        study.significance.mcnemar("q", "plane")
