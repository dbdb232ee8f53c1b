"""Coalitions of a small federation: two clients that agree, and one that does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import fedparity as fp
from fedparity.errors import InputError

NAMES = ("ann", "bob", "odd")


def drawn(seed: int, names: tuple[str, ...] = NAMES) -> fp.Federation:
    """Return clients with few examples of one rule, and with many of the opposite one."""
    rng = np.random.default_rng(seed)
    n = np.array([280 if name == "odd" else 220 for name in names])
    client = np.repeat(np.arange(len(names)), n)
    train = np.concatenate([np.arange(k) < k - 200 for k in n])
    x = rng.normal(size=(len(client), 8))
    sign = np.where(np.array(names)[client] == "odd", -1, 1)
    y = (sign * (x @ np.ones(8)) + rng.normal(size=len(x)) > 0).astype(int)
    part = np.where(train, "train", "test")
    return fp.Federation.from_arrays(x, y, np.array(names)[client], part)


def experiment(seed: int = 0, **more) -> fp.Experiment:
    known = {"rounds": 30, "solver": fp.Solver(lr=1.0, steps=1), "lstar": "none", **more}
    return fp.Experiment(drawn(seed), "linear", seed=seed, **known)


@pytest.fixture(scope="module")
def found() -> fp.Coalitions:
    return fp.coalitions(experiment, seeds=8)


def test_every_coalition_of_every_seed_is_trained_and_told_of_its_members(found):
    table = found.table()
    assert len(table) == 8 * 12  # 3 alone, 3 pairs of two, all of three
    assert set(table["coalition"]) == {
        *("ann", "bob", "odd", "ann + bob", "ann + odd", "bob + odd", "all")
    }
    assert found.complete
    assert not found.diverged


def test_a_coalition_is_a_run_with_its_members_only(found):
    data = experiment(3).federation.only("ann", "odd")
    alone = fp.Experiment(
        data, "linear", rounds=30, solver=fp.Solver(lr=1.0, steps=1), lstar="none", seed=3
    ).run()
    rows = found.table().query("seed == 3 and coalition == 'ann + odd'")
    assert rows["loss"].tolist() == alone.clients["test_loss"].tolist()


def test_who_disagrees_with_the_others_is_better_off_alone(found):
    verdicts = found.alone().set_index("client")["verdict"]
    assert verdicts["odd"] == "better off alone"
    row = found.alone().set_index("client").loc["odd"]
    assert 0 < row["low"] < row["change"] < row["high"]
    assert row["change"] == pytest.approx(row["with_all"] - row["alone"])


def test_those_who_agree_would_leave_together(found):
    told = found.leaving().set_index("group")
    assert told.loc["ann + bob", "verdict"] == "would leave"
    assert told.loc["odd", "verdict"] == "would leave"
    assert "bob + odd" not in told.index


def test_the_stable_partition_is_the_planted_one_and_certainly_so(found):
    planted = (("ann", "bob"), ("odd",))
    assert found.stable() == [planted]
    assert found.verdict(planted) == "stable"
    assert found.verdict((NAMES,)) == "not stable"


def test_who_agrees_helps_and_who_does_not_harms(found):
    told = found.shapley().set_index(["client", "giver"])
    assert told.loc[("ann", "bob"), "low"] > 0
    assert told.loc[("ann", "odd"), "high"] < 0
    gained = found.alone().set_index("client")["change"]
    np.testing.assert_allclose(told["value"].groupby("client").sum(), -gained.sort_index())


def test_splits_that_overlap_widen_every_interval(found):
    wide = dataclasses.replace(found, overlap=0.375)  # 1/8 + 0.375 is 4 times 1/8
    for told in ("alone", "shapley"):
        one, two = getattr(found, told)(), getattr(wide, told)()
        np.testing.assert_allclose(two["high"] - two["low"], 2 * (one["high"] - one["low"]))


def test_a_training_is_kept_as_soon_as_it_is_done_and_resplit_data_tell_their_overlap():
    rows = []
    made = fp.coalitions(experiment, seeds=2, resplit=True, keep=rows.append)
    assert len(rows) == 2 * 7
    pd.testing.assert_frame_equal(pd.concat(rows, ignore_index=True), made.table())
    assert made.overlap == pytest.approx(3 * 200 / (20 + 20 + 80))


def test_a_group_with_a_loss_that_is_no_number_is_listed_as_open(found):
    losses = [{g: loss.copy() for g, loss in of.items()} for of in found.losses]
    losses[0][0b101][0] = np.nan
    told = dataclasses.replace(found, losses=tuple(losses)).leaving().set_index("group")
    assert told.loc["ann + odd", "verdict"] == "cannot be told"


def test_one_seed_has_numbers_and_no_verdict():
    one = fp.coalitions(experiment(), seeds=[3])
    assert set(one.alone()["verdict"]) == {"cannot be told"}
    assert set(one.leaving()["verdict"]) == {"cannot be told"}
    assert one.verdict(one.stable()[0]) == "cannot be told"


def test_of_an_experiment_only_the_seed_is_changed():
    federation = experiment().federation
    one = fp.coalitions(experiment(solver=fp.Solver(lr=0.5, batch=10)), seeds=[7])
    again = fp.Experiment(
        federation, "linear", rounds=30, solver=fp.Solver(lr=0.5, batch=10), lstar="none", seed=7
    ).run()
    assert one.losses[0][7].tolist() == again.clients["test_loss"].tolist()


def test_alike_clients_get_no_verdict():
    def alike(seed: int) -> fp.Experiment:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(600, 2))
        y = (x[:, 0] + rng.normal(size=600) > 0).astype(int)
        data = fp.Federation.from_arrays(x, y, np.repeat(["a", "b", "c"], 200), seed=seed)
        return fp.Experiment(data, "linear", rounds=20, solver=fp.Solver(lr=0.5), lstar="none")

    same = fp.coalitions(alike, seeds=3)
    assert set(same.alone()["verdict"]) == {"cannot be told"}
    assert not (same.leaving()["verdict"] == "would leave").any()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"seeds": 0}, "seeds are at least one"),
        ({"seeds": [1, 1]}, "each once"),
        ({"confidence": 1.5}, "confidence is above 0.5"),
        ({"split": "tset"}, "split should be 'train', 'validation' or 'test', got 'tset'"),
        ({"split": "validation"}, "client 'ann' has no validation examples"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_training(more, told):
    with pytest.raises(InputError, match=told):
        fp.coalitions(experiment(), **more)


def test_a_method_that_cannot_train_one_client_is_refused_before_the_first_training():
    with pytest.raises(InputError, match="needs at least"):
        fp.coalitions(experiment(algorithm="cap(share=0.5)"))
