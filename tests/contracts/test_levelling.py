"""``not levelled_down against``: two runs on the same test examples, judged with certainty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_contracts import run

import fedparity as fp
from fedparity.certainty import GAINS, PAYS, UNTOLD, change
from fedparity.contracts import judge
from fedparity.testing import unlike_clients

CLAUSE = "not levelled_down against fedavg"


def noisy(gaps, algorithm="any", n=100, spread=0.1, seed=0):
    """Return a run whose losses on single examples scatter around 1 plus these gaps."""
    made = run(gaps, n=n)
    made.settings["algorithm"] = algorithm
    rows = made.predictions
    ours = rows["model"] == "global"
    noise = np.random.default_rng(seed).normal(0, spread, (len(gaps), n))
    noise -= noise.mean(axis=1, keepdims=True)  # so that mean gaps are those given
    rows.loc[ours, "loss"] = (1 + np.array(gaps)[:, None] + noise).ravel()
    return made


def word(now, before=(0.0, 0.4), **more):
    return judge(noisy(now, seed=1, **more), [CLAUSE], noisy(before, "fedavg", **more))[0]


# A mean difference of 100 pairs of losses that scatter by 0.1 has a standard error of 0.014.
@pytest.mark.parametrize(
    ("now", "told", "reason"),
    [
        ([0.0, 0.2], "holds", "c1 certainly gains 0.200"),
        ([0.35, 0.2], "holds", "c1 certainly gains 0.200"),  # at the other's cost, but it gains
        ([0.0, 0.8], "holds", "gaps are certainly no closer: their variance changes by +0.24"),
        ([0.35, 0.4], "broken", "c0 certainly pays (at least 0.3"),
        ([0.01, 0.4], "cannot be told", "gaps are not certainly closer"),
        ([0.05, 0.38], "cannot be told", "c0 certainly pays, but c1 may gain as much"),
    ],
)
def test_it_holds_is_broken_or_cannot_be_told(now, told, reason):
    found = word(now)
    assert found.word == told, found
    assert reason in found.reason


def test_a_run_does_not_level_down_against_itself():
    for n in (100, 24):
        itself = noisy([0.0, 0.4], "fedavg", n=n)
        assert judge(itself, [CLAUSE], itself)[0].word == "holds"


def test_a_client_of_few_examples_leaves_it_open():
    assert word([0.35, 0.4], n=24).word == "cannot be told"


def test_without_lstar_losses_stand_for_gaps():
    now, before = noisy([0.35, 0.4], seed=1), noisy([0.0, 0.4], "fedavg")
    for each in (now, before):
        del each.clients["test_lstar"]
        rows = each.predictions
        each._tables["predictions"] = rows[rows["model"] == "global"]
    assert judge(now, [CLAUSE], before)[0].word == "broken"


def test_runs_that_cannot_be_compared_leave_it_open():
    now, before = noisy([0.35, 0.4]), noisy([0.0, 0.4], "fedavg")
    before.rounds = 9
    assert "9 rounds" in judge(now, [CLAUSE], before)[0].reason
    assert judge(now, [CLAUSE], before)[0].word == "cannot be told"


def test_other_examples_and_another_algorithm_are_refused():
    with pytest.raises(fp.InputError, match="not tested on the same examples"):
        judge(noisy([0.35, 0.4], n=90), [CLAUSE], noisy([0.0, 0.4], "fedavg"))
    with pytest.raises(fp.InputError, match="compares with 'fedavg', and against is 'qffl'"):
        judge(noisy([0.35, 0.4]), [CLAUSE], noisy([0.0, 0.4], "qffl"))
    with pytest.raises(fp.InputError, match="did you mean 'fedavg'"):
        judge(noisy([0.35, 0.4]), ["not levelled_down against fedavgg"])
    with pytest.raises(fp.InputError, match=r"no run of 'fedavg' .*--against RUN"):
        judge(noisy([0.35, 0.4]), [CLAUSE])


def test_the_change_of_the_variance_has_the_error_and_bias_of_the_bootstrap():
    draws = np.random.default_rng(3)
    sizes = np.array([60, 80, 100, 120, 300])
    owner = np.repeat(np.arange(5), sizes)
    before = np.array([0.0, 0.1, 0.2, 0.5, 0.6])[owner] + draws.exponential(0.5, len(owner))
    now = 0.7 * before + draws.normal(0, 0.3, len(owner))

    def table(losses):
        places = np.concatenate([np.arange(n) for n in sizes])
        about = {"client": owner.astype(str), "index": places, "split": "test", "model": "global"}
        return pd.DataFrame({**about, "loss": losses})

    found = change(table(now), table(before)).variance

    def of(places):
        means = [[losses[p].mean() for p in places] for losses in (now, before)]
        return np.var(means[0], ddof=1) - np.var(means[1], ddof=1)

    each = [np.flatnonzero(owner == k) for k in range(5)]
    again = np.array([of([draws.choice(p, len(p)) for p in each]) for _ in range(2000)])
    bias = again.mean() - of(each)
    assert found[0] == pytest.approx(of(each) - bias, abs=3 * again.std() / 2000**0.5)
    half = (found[2] - found[1]) / 2  # Student's 97.5 % with 59 degrees of freedom: 2.001
    assert half / 2.001 == pytest.approx(again.std(), rel=0.15)


def test_a_change_is_told_client_by_client():
    found = change(noisy([0.3, 0.2, 0.0], seed=1).predictions, noisy([0.0, 0.4, 0.0]).predictions)
    assert list(found.clients["verdict"]) == [PAYS, GAINS, UNTOLD]
    assert found.clients["change"].tolist() == pytest.approx([0.3, -0.2, 0.0])


def test_the_reference_is_found_beside_a_run_of_the_same_settings(tmp_path):
    plain = fp.Experiment(
        unlike_clients(), "linear", rounds=2, lstar="none", dtype="float64", weighting="uniform"
    )
    plain.run(tmp_path / "a")
    made = replace(plain, algorithm="qffl(q=2)").run(tmp_path / "b")
    assert (
        judge(made, [CLAUSE])[0].reason
        == "nobody certainly gains, and gaps are not certainly closer"
    )
    other = replace(plain, algorithm="qffl(q=2)", rounds=3).run(tmp_path / "c")
    with pytest.raises(fp.InputError, match="no run of 'fedavg'"):
        judge(other, [CLAUSE])
    assert "ran 2 rounds" in judge(other, [CLAUSE], fp.Result.load(tmp_path / "a"))[0].reason
