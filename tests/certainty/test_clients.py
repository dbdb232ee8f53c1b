"""Intervals of clients and the words on who gains."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedparity as fp
from fedparity.certainty import GAINS, PAYS, UNTOLD, client_certainty
from fedparity.certainty.means import Means
from fedparity.certainty.multiple import holm
from fedparity.errors import InputError


def table(gaps, model="global", seed=0):
    """Return predictions of clients with these losses under a model and alone."""
    rng = np.random.default_rng(seed)
    rows = []
    for client, gap in gaps.items():
        alone = rng.gamma(2, 0.2, len(gap))
        for name, loss in ((model, alone + gap), ("alone", alone)):
            found = {"client": client, "split": "test", "index": range(len(gap)), "loss": loss}
            rows.append(pd.DataFrame({**found, "model": name}))
    return pd.concat(rows, ignore_index=True)


def noise(mean, n, seed):
    return mean + np.random.default_rng(seed).normal(0, 0.1, n)


def test_who_gains_and_pays_is_said_of_those_it_is_certain_of():
    found = client_certainty(
        table({"a": noise(-0.2, 60, 1), "b": noise(0.2, 60, 2), "c": noise(0.001, 60, 3)})
    )
    assert list(found["verdict"]) == [GAINS, PAYS, UNTOLD]
    assert ((found["gap_low"] < found["gap"]) & (found["gap"] < found["gap_high"])).all()


def test_a_client_of_few_examples_is_flagged_and_never_certain():
    found = client_certainty(table({"a": noise(-0.2, 24, 1), "b": noise(-0.2, 25, 1)}))
    assert list(found["few"]) == [True, False]
    assert list(found["verdict"]) == [UNTOLD, GAINS]


def test_losses_are_paired_by_example_whatever_the_order_of_rows():
    rows = table({"a": noise(-0.2, 60, 1), "b": noise(0.2, 60, 2)})
    mixed = rows.sample(frac=1, random_state=5)
    one, two = (client_certainty(each).set_index("client").sort_index() for each in (rows, mixed))
    np.testing.assert_allclose(one["gap_low"], two["gap_low"])
    direct = stats.ttest_1samp(noise(-0.2, 60, 1), 0).confidence_interval(0.95)
    assert one.loc["a", "gap_low"] == pytest.approx(direct.low)
    assert one.loc["a", "gap_high"] == pytest.approx(direct.high)


def test_personal_models_are_judged_where_there_are_any():
    rows = pd.concat(
        [table({"a": noise(0.5, 40, 1)}), table({"a": noise(-0.5, 40, 1)}, "personal")]
    )
    rows = rows.drop_duplicates(["client", "index", "model"])
    assert list(client_certainty(rows)["verdict"]) == [GAINS]


def test_a_given_lstar_is_taken_as_exact():
    rows = table({"a": noise(0, 40, 1)}).query("model == 'global'")
    assert "verdict" not in client_certainty(rows)
    assert list(client_certainty(rows, lstar={"a": 5.0})["verdict"]) == [GAINS]
    assert list(client_certainty(rows, lstar={"b": 5.0})["verdict"]) == [UNTOLD]


def test_simultaneous_intervals_are_those_of_bonferroni():
    rows = table({name: noise(0, 40, seed) for seed, name in enumerate("abcde")})
    wide, narrow = (
        client_certainty(rows, simultaneous=True),
        client_certainty(rows, confidence=0.99),
    )
    np.testing.assert_allclose(wide["gap_low"], narrow["gap_low"])  # 1 - 0.05 / 5


def test_a_loss_that_is_not_finite_leaves_its_client_untold():
    gaps = {"a": noise(-0.2, 40, 1), "b": noise(-0.2, 40, 2)}
    gaps["b"][3] = np.nan
    assert list(client_certainty(table(gaps))["verdict"]) == [GAINS, UNTOLD]


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_is_between_0_and_1(confidence):
    with pytest.raises(InputError, match=r"between 0 and 1, such as 0\.95"):
        client_certainty(table({"a": noise(0, 40, 1)}), confidence=confidence)


def test_what_is_computed_for_all_clients_at_once_is_scipys_client_by_client():
    rng = np.random.default_rng(3)
    values, owner = rng.gamma(1, 1, 90), np.repeat([0, 1, 2], 30)
    found = Means.of(values, owner, 3)
    for k in range(3):
        mine = values[owner == k]
        assert found.skewness[k] == pytest.approx(stats.skew(mine))
        assert found.std[k] == pytest.approx(mine.std(ddof=1))
        assert found.pvalues(1.0)[k] >= stats.ttest_1samp(mine, 1.0).pvalue - 1e-12


def test_without_skewness_the_test_is_the_t_test():
    values = np.r_[np.arange(1.0, 21), -np.arange(1.0, 21)] + 3
    found = Means.of(values, np.zeros(40, int), 1).pvalues()
    assert found[0] == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.04 times 3, 2, 1: 0.03, 0.04, 0.04
    np.testing.assert_allclose(holm([0.04, np.nan, 0.01, 0.02]), [0.04, np.nan, 0.03, 0.04])
    assert holm([]).shape == (0,)
    assert holm([0.9, 0.8]).max() == 1


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 3))
    y = (x[:, 0] + rng.normal(size=400) > 0).astype(int)
    owner = np.repeat(["a", "b"], 200)
    return fp.Federation.from_arrays(x, y, owner, fractions=(0.3, 0.1, 0.6), seed=0)


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    made = fp.Experiment(data, "linear", rounds=3, metrics=["auc"])
    return made.run(tmp_path_factory.mktemp("certainty") / "run")


def test_the_numbers_of_a_run_are_those_of_its_clients(done):
    found = fp.Result.load(done.path).certainty(resamples=50).set_index("client")
    clients = done.clients.set_index("client")
    for column in ("loss", "gap", "accuracy", "auc"):
        np.testing.assert_allclose(found[column], clients[f"test_{column}"])
        assert (found[f"{column}_low"] < found[column]).all()
        assert (found[column] < found[f"{column}_high"]).all()
    assert set(found["verdict"]) <= {GAINS, PAYS, UNTOLD}


def test_who_trains_alone_neither_gains_nor_pays(data):
    alone = fp.Experiment(data, "linear", algorithm="local", rounds=1).run()
    assert "verdict" not in alone.certainty()
