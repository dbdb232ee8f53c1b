"""Clients that never train: who they are, what they get at the end, and where it is told."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import cross_entropy

import fedparity as fp
from fedparity.errors import InputError
from fedparity.records.result import Result
from fedparity.reports.html import page
from fedparity.reports.tables import show
from fedparity.run.unseen import dealt, refuse_on_flower

NAMES = tuple("abcdefgh")


def federation(names=NAMES):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20 * len(names), 3))
    y = (x[:, 0] + rng.normal(size=len(x)) > 0).astype(int)
    return fp.Federation.from_arrays(x, y, np.repeat(names, 20), fractions=(0.6, 0.2, 0.2))


def experiment(algorithm="fedavg", made=None, **changed):
    settings = {"rounds": 4, "solver": fp.Solver(lr=0.3), "lstar": "none", "unseen": 0.25}
    return fp.Experiment(made or federation(), "linear", algorithm, **{**settings, **changed})


def test_who_is_left_out_depends_on_name_and_seed_and_not_on_order():
    drawn = {seed: set(dealt(NAMES, 3, seed)) for seed in range(6)}
    assert all(set(dealt(NAMES[::-1], 3, seed)) == drawn[seed] for seed in drawn)
    assert len(set(map(frozenset, drawn.values()))) > 1
    assert set(dealt(NAMES, 2, 0)) < set(dealt(NAMES, 3, 0))
    assert dealt(NAMES, 0.25, 1) == dealt(NAMES, 2, 1)
    assert dealt(NAMES, ["h", "b"], 1) == ("b", "h")
    assert dealt(NAMES, None, 1) == ()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (8, "nobody is left"),
        (0, "leave it out"),
        (-1, "leave it out"),
        (1.5, "a share below 1"),
        (["z"], "client 'z'"),
        (list(NAMES), "nobody is left"),
        ("many", "unseen"),
    ],
)
def test_what_cannot_be_dealt_is_refused(asked, said):
    with pytest.raises(InputError, match=said):
        experiment(unseen=asked)


def test_the_run_is_that_of_the_clients_that_train():
    whole = federation()
    split = experiment(made=whole)
    trained = [name for name in NAMES if name not in dealt(NAMES, 0.25, 0)]
    mine, theirs = split.run(), experiment(made=whole.only(*trained), unseen=None).run()
    assert list(mine.clients["client"]) == trained
    for one, other in zip(mine.model().parameters(), theirs.model().parameters(), strict=True):
        assert torch.equal(one, other)


def test_their_numbers_are_those_of_the_final_model():
    whole = federation()
    result = experiment(made=whole, metrics=["auc"]).run()
    names = dealt(NAMES, 0.25, 0)
    assert list(result.unseen["client"]) == list(names)
    data = whole.only(*names).to(torch.float32)
    for k in range(len(names)):
        x, y = data.test.client(k)
        with torch.no_grad():
            said = result.model()(x)
        assert result.unseen["test_loss"][k] == pytest.approx(float(cross_entropy(said, y)))
        right = float((said.argmax(1) == y).float().mean())
        assert result.unseen["test_accuracy"][k] == pytest.approx(right)
    summary = result.unseen_summary()
    assert summary["mean_loss"] == pytest.approx(result.unseen["test_loss"].mean())
    assert "mean_auc" in summary


def test_another_seed_of_the_same_experiment_deals_anew():
    made = experiment(unseen=["a"])
    again = dataclasses.replace(made, unseen=["b"])
    assert again.federation.names == tuple("acdefgh")
    assert dataclasses.replace(made, unseen=None).federation.names == NAMES


def test_a_resumed_run_leaves_out_the_same_and_refuses_others(tmp_path):
    whole, folder = federation(), tmp_path / "run"
    straight = experiment(made=whole).run()
    experiment(made=whole, rounds=2).run(folder)
    went_on = fp.resume(folder, federation=whole, rounds=4)
    assert went_on.unseen.equals(straight.unseen)
    assert Result.load(folder).unseen.equals(straight.unseen)
    with pytest.raises(InputError, match="cannot resume"):
        experiment(made=whole, rounds=5, unseen=3).resume(folder)


def test_table_and_report_say_so():
    result = experiment().run()
    console = Console(file=io.StringIO(), width=120)
    show({"fedavg": result}, console)
    names = dealt(NAMES, 0.25, 0)
    for text in (console.file.getvalue(), page({"fedavg": result})):
        assert "2 clients never trained" in text
    assert "unseen client" in console.file.getvalue()
    assert "Clients never seen in training" in page({"fedavg": result})
    everyone = experiment(unseen=None).run()
    assert "never" not in page({"fedavg": everyone})
    with pytest.raises(InputError, match="every client trained"):
        everyone.unseen_summary()
    assert len(names) == 2


@pytest.mark.parametrize("algorithm", ["local", "fedrep"])
def test_parts_without_a_whole_shared_model_are_refused(algorithm):
    with pytest.raises(InputError, match="unseen clients have none"):
        experiment(algorithm, solver=fp.Solver(lr=0.3, steps=2))


def test_flower_refuses_it_plainly():
    with pytest.raises(InputError, match="not evaluated on Flower"):
        refuse_on_flower(experiment().conditions)
    with pytest.raises(InputError, match="not evaluated on Flower"):
        experiment(engine="flower")


def test_search_and_coalitions_know_nothing_of_them():
    from fedparity.joining.training import lean
    from fedparity.tuning.search import _blind

    made = experiment()
    for found in (lean(made), _blind(made)):
        assert found.federation.names == made.federation.names
        assert found.federation.whole is None
