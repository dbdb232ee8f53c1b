"""Groups inside clients over Flower: the simulator's table, but for groups that are too small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from inprocess import Deployment

import fedparity as fp
from fedparity.flower.grouped import FEWEST

HAVE = ("a", "b", "c")


def people() -> fp.Federation:
    """Return three clients; 'c' has nobody of the group 'x', and 'a' three such test examples."""
    rng = np.random.default_rng(0)
    client = np.repeat(HAVE, (80, 60, 60))
    sex = rng.choice(["f", "m"], len(client))
    part = np.resize(["train", "test", "validation", "test"], len(client))
    sex[np.flatnonzero((client == "a") & (part == "test"))[:3]] = "x"
    sex[np.flatnonzero((client == "b") & (part == "test"))[:6]] = "x"
    x = rng.normal(size=(len(client), 3))
    y = (x[:, 0] + rng.normal(size=len(client)) > 0).astype(int)
    age = np.where(rng.random(len(client)) < 0.5, "old", "young")
    return fp.Federation.from_arrays(x, y, client, part, groups={"sex": sex, "age": age})


def deployment(folder: Path, algorithm: str = "fedavg") -> Deployment:
    settings = {
        **{"model": "linear", "rounds": 1, "lstar": "none", "algorithm": algorithm},
        "metrics": ["auc", "brier"],
    }
    return Deployment(folder, settings, people())


@pytest.mark.parametrize("algorithm", ["fedavg", "finetune"])
def test_groups_at_sites_have_the_numbers_of_the_simulator(tmp_path, algorithm):
    made = deployment(tmp_path, algorithm)
    deployed, simulated = made.run(), made.simulate()
    assert deployed.groups == simulated.groups == ["sex", "age"]
    told, whole = (each.by_group("age") for each in (deployed, simulated))
    pd.testing.assert_frame_equal(told, whole, check_exact=True, check_dtype=False)
    told, whole = (each.by_group("age", split="validation") for each in (deployed, simulated))
    assert told["n"].tolist() == whole["n"].tolist()
    told = fp.Result.load(tmp_path / "run").by_group("sex").set_index(["client", "sex"])
    whole = simulated.by_group("sex").set_index(["client", "sex"])
    assert list(told.index) == list(whole.index)
    assert told["n"].tolist() == whole["n"].tolist()
    assert told.loc[("a", "x"), "n"] == 3
    hidden = [cell for cell in told.index if np.isnan(told.loc[cell, "loss"])]
    smaller = min("fm", key=lambda sex: told.loc[("a", sex), "n"])
    # beside the three, one more: else the three could be told from the whole client's loss
    assert sorted(hidden) == sorted([("a", "x"), ("a", smaller), ("c", "x")])
    seen = [cell for cell in told.index if cell not in hidden]
    assert min(told.loc[seen, "n"]) >= FEWEST
    pd.testing.assert_frame_equal(told.loc[seen], whole.loc[seen], check_exact=True)
    assert "Clients by sex" in (tmp_path / "run" / "report.html").read_text()
    assert deployed.by_group("age", metrics=["auc"]).columns[-1] == "auc_high"
    with pytest.raises(fp.InputError, match="unknown metric told by the sites 'f1': Known: auc"):
        deployed.by_group("age", metrics=["f1"])


def lying(change):
    """Return the fault of a site that tells something else of its groups."""

    def fault(client, asked, reply):
        words = reply.content.config_records.get("words", {})
        if client == "b" and "groups" in words:
            told = json.loads(words["groups"])
            words["groups"] = change if isinstance(change, str) else json.dumps(change(told))
        return reply

    return fault


def first(**changes):
    return lambda told: [told[0] | changes, *told[1:]]


def number(name, three):
    return lambda told: [told[0] | {"numbers": told[0]["numbers"] | {name: three}}, *told[1:]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("{", "is wrong at"),
        (lambda told: told[1:], "it tells of other groups than it has"),
        (first(group="y"), "it tells of other groups than it has"),
        (first(n=1 << 30), "its groups by 'sex' have"),
        (first(n=-1), "is wrong at '0.n'"),
        (number("accuracy", [2.0, None, None]), "'accuracy' is 2: not a share"),
        (number("auc", [1.5, None, None]), "not from 0 to 1"),
        (number("secret", [1.0, None, None]), "it sends 'secret', which nobody asked for"),
        (number("loss", [1.0, "NaN", None]), "is wrong at"),
    ],
)
def test_a_site_that_tells_nonsense_of_its_groups_is_left_out(tmp_path, change, words):
    made = deployment(tmp_path)
    found = made.run(fault=lying(change)).by_group("sex").set_index("client")
    assert found.loc["b", "n"].sum() == 0
    assert found.loc["c", "n"].sum() == 30
    assert any(
        words in line["failed"]["b"]
        for line in made.log()
        if "failed" in line and "b" in line["failed"]
    )


def test_clients_without_groups_are_asked_nothing_more(tmp_path):
    rows = np.arange(60)
    plain = fp.Federation.from_arrays(rows[:, None] / 60, rows % 2, rows % 3)
    made = Deployment(tmp_path, {"rounds": 1, "lstar": "none"}, plain)
    assert made.run().groups == []
    assert not any(kind == "query.groups" for kind, _ in made.grid.sent)
