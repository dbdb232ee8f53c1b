"""Groups inside clients: fairlearn's numbers, counts and intervals."""

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame, count
from sklearn.metrics import accuracy_score, roc_auc_score

import fedparity as fp
from fedparity.metrics.groups import _share

fp_metrics = ["auc", "log_loss"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(600, 3))
    y = (x[:, 0] + rng.normal(size=600) > 0).astype(int)
    data = fp.Federation.from_arrays(
        x,
        y,
        np.repeat(["a", "b", "c"], 200),
        fractions=(0.5, 0.1, 0.4),
        groups={"sex": rng.choice(["f", "m"], 600, p=[0.2, 0.8])},
    )
    made = fp.Experiment(data, "linear", rounds=3, lstar="none", metrics=fp_metrics)
    return made.run(tmp_path_factory.mktemp("groups") / "run")


def test_the_table_by_client_and_group_is_that_of_fairlearn(done):
    rows = done.predictions.query("split == 'test' and model == 'global'")
    sensitive, control = rows["group_sex"].astype(str), rows["client"].astype(str)
    guess = rows[["output_0", "output_1"]].to_numpy().argmax(1)
    shared = {"sensitive_features": sensitive, "control_features": control}
    labels = MetricFrame(
        metrics={"n": count, "accuracy": accuracy_score},
        y_true=rows["target"],
        y_pred=guess,
        **shared,
    ).by_group
    scores = MetricFrame(
        metrics={"auc": roc_auc_score}, y_true=rows["target"], y_pred=rows["output_1"], **shared
    ).by_group
    found = done.by_group("sex").set_index(["client", "sex"])
    for table in (labels, scores):
        for name in table:
            for cell, value in table[name].items():
                assert found.loc[cell, name] == pytest.approx(value, abs=1e-12)
    assert len(found) == 6


def test_groups_together_are_the_client(done):
    table = done.by_group("sex")
    for client, rows in table.groupby("client", observed=True):
        mine = done.clients.set_index("client").loc[str(client)]
        assert rows["n"].sum() == mine["n_test"]
        pooled = (rows["n"] * rows["accuracy"]).sum() / rows["n"].sum()
        assert pooled == pytest.approx(mine["test_accuracy"])


def test_every_number_lies_in_its_interval(done):
    table = done.by_group("sex")
    for name in ("loss", "accuracy", *fp_metrics):
        assert (table[f"{name}_low"] <= table[name]).all()
        assert (table[name] <= table[f"{name}_high"]).all()


def test_the_interval_of_an_accuracy_is_wilsons():
    # 8 of 10: Wilson's 95 % interval is 0.490 to 0.943 (Agresti and Coull 1998 have the formula)
    found = _share(np.array([True] * 8 + [False] * 2))
    assert (round(found.low, 3), round(found.high, 3)) == (0.49, 0.943)


def test_a_group_that_a_client_lacks_has_no_numbers_and_no_example():
    data = fp.Federation.from_arrays(
        np.zeros((40, 1)),
        [0, 1] * 20,
        ["a"] * 20 + ["b"] * 20,
        groups={"sex": ["f"] * 20 + ["f", "m"] * 10},
        fractions=(0.4, 0.1, 0.5),
    )
    table = fp.Experiment(data, "linear", rounds=1, lstar="none").run().by_group("sex")
    row = table[(table["client"] == "a") & (table["sex"] == "m")].iloc[0]
    assert row["n"] == 0
    assert np.isnan([row["accuracy"], row["loss"], row["accuracy_low"]]).all()


def test_the_report_has_the_table_and_a_wrong_kind_is_refused(done):
    page = (done.path / "report.html").read_text()
    assert "<h2>Clients by sex</h2>" in page
    with pytest.raises(fp.InputError, match="unknown kind of group 'age'"):
        fp.Result.load(done.path).by_group("age")
