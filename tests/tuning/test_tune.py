"""A search for an aim: on validation examples, with a journal, under conditions."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import fedparity as fp
from fedparity.errors import InputError
from fedparity.testing import unlike_clients
from fedparity.tuning.space import read_range, with_settings

DATA = unlike_clients((9, 8, 6, 6, 8))  # the third client has no validation examples
AIM = "lowest loss with accuracy within 5 points of fedavg"
SPACE = {"solver.lr": "0.01..1 log", "eagle.lam": "0.5,1,2"}


def experiment(data: fp.Federation = DATA, **more) -> fp.Experiment:
    known = {"rounds": 6, "solver": fp.Solver(lr=0.1, steps=1), "evaluate_every": 2, **more}
    known = {"algorithm": "eagle(lam=1)", "lstar": "best_validation(rounds=5)", **known}
    return fp.Experiment(data, "linear", **known)


@pytest.fixture(scope="module")
def found() -> fp.Tuned:
    return fp.tune(experiment(), SPACE, aim=AIM, trials=8)


def test_the_best_is_the_lowest_of_those_that_meet_every_condition(found):
    done = found.trials[found.trials["state"] == "complete"]
    allowed = done[done["mean_accuracy"] >= found.references["fedavg"]["mean_accuracy"] - 5]
    best = allowed.loc[allowed["mean_loss"].idxmin()]
    assert len(found.trials) == 8
    assert found.best == {"solver.lr": best["solver.lr"], "eagle.lam": best["eagle.lam"]}


def test_the_experiment_found_has_the_settings_and_the_test_examples(found):
    made = found.experiment()
    assert made.solver.lr == found.best["solver.lr"]
    assert made.setup.algorithm.text == f"eagle(lam={found.best['eagle.lam']})"
    assert len(made.federation.test) == len(DATA.test)


def test_the_experiment_found_has_the_lstar_of_the_search(found):
    made = found.experiment().run()
    given = experiment().run()  # with the solver that was given
    for split in ("validation", "test"):
        assert made.clients[f"{split}_lstar"].equals(given.clients[f"{split}_lstar"])


def test_test_examples_do_not_influence_anything(found):
    odd = dataclasses.replace(DATA.test, x=100 - 7 * DATA.test.x, y=torch.flip(DATA.test.y, (0,)))
    other = fp.tune(experiment(dataclasses.replace(DATA, test=odd)), SPACE, aim=AIM, trials=8)
    assert other.trials.equals(found.trials)
    assert (other.best, other.references) == (found.best, found.references)


def test_validation_examples_do(found):
    odd = dataclasses.replace(DATA.validation, x=100 - 7 * DATA.validation.x)
    other = fp.tune(experiment(dataclasses.replace(DATA, validation=odd)), SPACE, aim=AIM, trials=1)
    assert not other.trials["mean_loss"].equals(found.trials["mean_loss"][:1])


def test_no_trial_moves_lstar(monkeypatch):
    seen = []
    run = fp.Experiment.run
    monkeypatch.setattr(
        fp.Experiment, "run", lambda self, *a, **b: seen.append(self.lstar) or run(self, *a, **b)
    )
    fp.tune(experiment(), SPACE, aim=AIM, trials=3)
    numbers = [told for told in seen if isinstance(told, dict)]
    assert len(numbers) == 4  # fedavg and three trials
    assert all(told == numbers[0] for told in numbers)


def test_a_search_goes_on_from_its_journal(tmp_path):
    file = tmp_path / "there" / "tune.journal"
    first = fp.tune(experiment(), SPACE, aim=AIM, trials=2, journal=file)
    again = fp.tune(experiment(), SPACE, aim=AIM, trials=4, journal=file)
    assert len(again.trials) == 4
    assert again.trials["solver.lr"][:2].tolist() == first.trials["solver.lr"].tolist()
    done = fp.tune(experiment(), SPACE, aim=AIM, trials=4, journal=file)
    assert done.trials.equals(again.trials)


def test_a_file_that_is_no_journal_is_told_in_a_line(tmp_path):
    file = tmp_path / "tune.journal"
    file.write_text("no journal\n")
    with pytest.raises(InputError, match="no journal of a search, or damaged") as told:
        fp.tune(experiment(), SPACE, aim=AIM, trials=1, journal=file)
    assert "\n" not in str(told.value)


def test_a_journal_of_another_search_is_refused(tmp_path):
    file = tmp_path / "tune.journal"
    fp.tune(experiment(), SPACE, aim=AIM, trials=1, journal=file)
    with pytest.raises(InputError, match="journal is of another search"):
        fp.tune(experiment(), SPACE, aim="lowest loss", trials=1, journal=file)


def test_poor_trials_end_early():
    space = {"solver.lr": "0.1..1"}
    ran = fp.tune(experiment(rounds=10, evaluate_every=1), space, aim="lowest loss", trials=14)
    assert (ran.trials["state"] == "pruned").any()
    assert ran.best is not None


def test_no_trial_ends_early_where_there_is_a_condition():
    space = {"solver.lr": "0.1..1"}
    aim = "lowest loss with accuracy >= 1"
    ran = fp.tune(experiment(rounds=10, evaluate_every=1), space, aim=aim, trials=9)
    assert (ran.trials["state"] == "complete").all()


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_reference_that_diverged_is_told():
    wild = experiment(solver=fp.Solver(lr=1e30, steps=1))
    with pytest.raises(InputError, match="fedavg diverged"):
        fp.tune(wild, SPACE, aim=AIM, trials=1)


def test_an_aim_that_nothing_meets_has_no_best():
    none = fp.tune(experiment(), SPACE, aim="lowest loss with accuracy >= 101", trials=1)
    assert none.best is None
    assert (none.trials["missed"] > 0).all()
    with pytest.raises(InputError, match="no trial met every condition"):
        none.experiment()


@pytest.mark.parametrize(
    ("text", "told"),
    [("1..0", "no range"), ("0..1 log", "log above 0"), ("0.1..", "cannot read"), ("", "cannot")],
)
def test_values_that_cannot_be_searched_are_told(text, told):
    with pytest.raises(InputError, match=told):
        read_range("solver.lr", text)


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ({}, "name the settings to search"),
        ({"solver.rate": "0..1"}, "did you mean 'solver.lr'"),
        ({"eagle.lamb": "1..2"}, "unknown setting of eagle 'lamb'"),
        ({"qffl.q": "1..2"}, "unknown setting to search 'qffl.q'"),
        ({"solver.lr": "-1..1"}, "lr"),
    ],
)
def test_settings_that_there_are_not_are_told_before_a_training(space, told):
    with pytest.raises(InputError, match=told):
        fp.tune(experiment(), space, aim=AIM)


def test_settings_go_where_their_names_say():
    made = with_settings(
        experiment(algorithm="eagle(lam=1)+prox"), {"prox.mu": 0.3, "server_lr": 2}
    )
    assert made.setup.algorithm.text == "eagle(lam=1)+prox(mu=0.3)"
    assert made.server_lr == 2
