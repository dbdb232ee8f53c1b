"""Who is asked in a round: by chance, by size, by loss, or whoever is there."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

import fedparity as fp
import fedparity.run.rounds
from fedparity.errors import FedparityError, InputError
from fedparity.learning.seeds import generator
from fedparity.method import Losses
from fedparity.method.algorithm import ask_losses
from fedparity.method.messages import Down
from fedparity.run.driver import MOST_EMPTY, Run
from fedparity.run.experiment import Experiment
from fedparity.run.sampling import SAMPLINGS, Available, PowerOfChoice, Sampling, read
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients

SIZES = (9, 4, 1, 6, 7, 2, 5, 3, 8, 5)
TRACE = "round,client\n1,0\n1,3\n2,1\n4,2\n4,0\n4,1\n4,3\n"
"""Clients 0 and 3, then 1, then nobody, then all four."""


class Repeats(Sampling):
    """Draws client 0 twice, and client 2."""

    name = "repeats"
    weighting = "uniform"

    def draw(self, round, state, who, losses):
        return np.asarray([0, 0, 2]), state


def experiment(federation=None, **more) -> Experiment:
    known = {"rounds": 6, "solver": fp.Solver(lr=0.1, steps=2), "lstar": "none", "cohort": 3}
    federation = unlike_clients(SIZES) if federation is None else federation
    return Experiment(federation, "linear", **{**known, "dtype": "float64", **more})


def cohorts(made: Experiment) -> list[list[int]]:
    """Return who is asked in each round of a run."""
    run, found = Run(made), []
    state = run.open()
    try:
        for _ in range(made.rounds):
            run.round(state)
            found.append(run.door.attendance.asked)
    finally:
        run.close()
    return found


def losses_before(made: Experiment) -> np.ndarray:
    """Return the clients' training losses before the first round, from the examples."""
    train, module = made.federation.train, made.setup.module
    with torch.no_grad():
        each = nn.functional.cross_entropy(module(train.x), train.y, reduction="none").numpy()
    return np.asarray([part.mean() for part in np.split(each, train.offsets[1:-1])])


def trace(folder: Path, text: str = TRACE) -> str:
    file = folder / "trace.csv"
    file.write_text(text)
    return f"available(file={str(file)!r})"


def test_uniform_draws_what_numpy_draws_at_the_address_of_the_round():
    made = experiment()
    for t in (1, 2, 50):
        rng = generator(made.seed, "cohort", t)
        wanted = np.sort(rng.choice(10, 3, replace=False, shuffle=False))
        assert made.sample(t).tolist() == wanted.tolist()


def test_size_draws_those_who_win_a_race_at_the_pace_of_their_examples():
    made = experiment(sampling="size")
    for t in (1, 2, 50):
        races = generator(made.seed, "cohort", t).exponential(size=10) / np.asarray(SIZES)
        assert made.sample(t).tolist() == sorted(np.argsort(races)[:3].tolist())


@pytest.mark.parametrize("sampling", ["uniform", "size", "power_of_choice(candidates=10)"])
def test_with_a_cohort_of_all_everyone_is_asked(sampling):
    assert cohorts(experiment(sampling=sampling, cohort=None, rounds=2)) == [list(range(10))] * 2


@pytest.mark.parametrize("sampling", ["uniform", "size"])
def test_a_run_asks_the_cohorts_that_the_experiment_tells(sampling):
    made = experiment(sampling=sampling)
    assert cohorts(made) == [made.sample(t).tolist() for t in range(1, 7)]


def test_with_replacement_every_draw_is_by_size_and_repeats_are_there():
    made = experiment(sampling="size_replaced", rounds=400)
    drawn = np.concatenate([made.sample(t) for t in range(1, 401)])
    assert len(drawn) == 1200
    shares = np.bincount(drawn, minlength=10) / 1200
    # the standard error of a share of at most 9/50 is sqrt(0.18 * 0.82 / 1200) = 0.011
    assert shares == pytest.approx(np.asarray(SIZES) / sum(SIZES), abs=0.04)
    assert any(len(set(made.sample(t))) < 3 for t in range(1, 401))


def test_a_client_drawn_twice_is_asked_once_and_weighs_twice(unlike):
    made = experiment(unlike, sampling=Repeats(), cohort=3, rounds=1)
    run = Run(made)
    state = run.open()
    run.round(state)
    run.close()
    assert run.door.attendance.asked == [0, 2]
    told = run.history.table()
    weights = told[told["metric"] == "weight"].sort_values("client")["value"]
    assert weights.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_power_of_choice_takes_the_highest_losses():
    made = experiment(sampling="power_of_choice(candidates=10)")
    wanted = np.argsort(-losses_before(made))[:3]
    assert cohorts(made)[0] == sorted(wanted.tolist())


def test_power_of_choice_takes_the_highest_losses_of_its_candidates():
    made = experiment(sampling="power_of_choice(candidates=5)")
    races = generator(made.seed, "cohort", 1).exponential(size=10) / np.asarray(SIZES)
    drawn, losses = np.argsort(races)[:5], losses_before(made)
    wanted = drawn[np.argsort(-losses[drawn])[:3]]
    assert cohorts(made)[0] == sorted(wanted.tolist())


@pytest.mark.parametrize("signal", ["fresh", "stale"])
def test_with_as_many_candidates_as_the_cohort_it_is_sampling_by_size(signal):
    made = experiment(sampling=PowerOfChoice(candidates=3, signal=signal))
    by_size = experiment(sampling="size")
    assert cohorts(made) == cohorts(by_size)
    one, other = (dict(e.run().model().named_parameters()) for e in (made, by_size))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_clients_of_unknown_loss_come_first_where_losses_are_stale(unlike):
    made = experiment(unlike, sampling="power_of_choice(candidates=4, signal=stale)", cohort=2)
    run = Run(made)
    state = run.open()
    asked = []
    for _ in range(2):
        down = Down("losses", 1, 0.1, state.server.x, state.server.buffers)
        losses = ask_losses(down, torch.arange(4), run.door.ask).values[:, 0]
        run.round(state)
        asked.append(run.door.attendance.asked)
        assert torch.equal(state.sampling["losses"][asked[-1]], losses[asked[-1]])
    run.close()
    assert sorted(asked[0] + asked[1]) == [0, 1, 2, 3]


def test_a_candidate_that_tells_no_loss_is_left_out(unlike):
    sampling = PowerOfChoice(candidates=4)
    who = experiment(unlike, cohort=2).population

    def losses(clients):
        assert clients.tolist() == [0, 1, 2, 3]
        return np.asarray([0, 1, 3]), torch.tensor([0.3, 0.2, 0.1])

    assert sampling.draw(1, {}, who, losses)[0].tolist() == [0, 1]
    nobody = sampling.draw(1, {}, who, lambda clients: (clients[:0], torch.zeros(0)))
    assert nobody[0].tolist() == []


def test_a_run_gives_up_where_nobody_tells_a_loss(unlike, monkeypatch):
    made = experiment(unlike, sampling="power_of_choice(candidates=4)", cohort=2, rounds=50)
    nobody = lambda down, clients, ask: Losses(clients[:0], torch.zeros(0, 1))  # noqa: E731
    monkeypatch.setattr(fedparity.run.rounds, "ask_losses", nobody)
    with pytest.raises(FedparityError, match=f"{MOST_EMPTY} rounds in a row.*told no loss"):
        made.run()


def test_cohorts_that_depend_on_the_run_are_not_told_before():
    with pytest.raises(InputError, match="'power_of_choice' depend on the run"):
        experiment(sampling="power_of_choice(candidates=5)").sample(1)


@pytest.mark.parametrize(
    ("sampling", "by_size"),
    [
        ("uniform", True),
        ("size", False),
        ("power_of_choice(candidates=5)", False),
        ("available(share=0.5)", True),
    ],
)
def test_the_default_weighting_goes_with_the_sampling(sampling, by_size):
    assert experiment(sampling=sampling).by_size == by_size
    assert experiment(sampling=sampling, weighting="size").by_size


def test_only_clients_that_are_there_are_asked(unlike, tmp_path):
    made = experiment(unlike, sampling=trace(tmp_path), cohort=3, rounds=8)
    found = cohorts(made)
    assert found[:3] == [[0, 3], [1], []]
    assert len(found[3]) == 3
    assert found[4:7] == found[:3]  # the trace begins again
    assert found == [made.sample(t).tolist() for t in range(1, 9)]


def test_with_everyone_there_it_is_uniform_sampling():
    always = experiment(sampling="available(share=1, period=7)")
    assert cohorts(always) == cohorts(experiment())


def test_a_client_is_there_for_its_share_of_every_day():
    made = experiment(sampling="available(share=0.25, period=8)", cohort=None)
    there = np.zeros((16, 10), dtype=bool)
    for t in range(16):
        there[t, made.sample(t + 1)] = True
    assert there.sum(0).tolist() == [4] * 10  # two days, two of eight rounds each
    assert (there[:8] == there[8:]).all()


def test_a_round_with_nobody_there_is_empty_and_no_failure(unlike, tmp_path):
    sampling = trace(tmp_path, f"round,client\n1,0\n{MOST_EMPTY + 5},1\n")
    made = experiment(unlike, sampling=sampling, rounds=MOST_EMPTY + 5)
    result = made.run(out=tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["asked"] for line in log] == [1, *[0] * (MOST_EMPTY + 3), 1]
    assert [line.get("skipped", False) for line in log] == [line["asked"] == 0 for line in log]
    assert result.clients["rounds_answered"].tolist() == [1, 1, 0, 0]


def test_a_part_that_needs_everyone_is_refused_where_clients_may_be_away(unlike):
    part = fp.algorithm("afl").parts[0]
    needy = type("Needy", (type(part),), {"needs": frozenset({"full_participation"})})()
    experiment(unlike, algorithm=[needy], cohort=None)
    with pytest.raises(InputError, match="needs every client in every round"):
        experiment(unlike, algorithm=[needy], cohort=None, sampling="available(share=0.5)")


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ("sizes", "unknown sampling 'sizes': did you mean 'size'"),
        ("uniform+size", "2 terms where one is expected"),
        ("uniform(m=3)", "unknown setting of uniform 'm'"),
        ("power_of_choice", "candidates must be given"),
        ("power_of_choice(candidates=2)", "at least the cohort of 3"),
        ("power_of_choice(candidates=11)", "at most the 10 clients"),
        ("power_of_choice(candidates=5, signal=old)", "'fresh' or 'stale'"),
        ("available", "give either file or share"),
        ("available(file=a.csv, share=0.5)", "give either file or share"),
        ("available(share=0)", "greater than 0"),
        ("available(file=nowhere.csv)", "cannot read nowhere.csv: No such file"),
        (3, "sampling is a text"),
    ],
)
def test_a_wrong_sampling_is_refused_in_one_line(sampling, said):
    with pytest.raises(InputError, match=said) as found:
        experiment(sampling=sampling)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot read"),
        ("round,name\n1,0\n", "no column 'client'"),
        ("client\n0\n", "no column 'round'"),
        ("round,client\n", "has no rows"),
        ("round,client\n1,0\n2,Zug\n", "unknown client in .* 'Zug'"),
        ("round,client\n0,0\n", "round '0' is not a whole number from 1"),
        ("round,client\n1.5,0\n", "round '1.5' is not"),
        ("round,client\n1e300,0\n", "round '1e[+]300' is not"),
        ("round,client\nsoon,0\n", "round 'soon' is not"),
        ("round,client\n,0\n", "round 'nan' is not"),
    ],
)
def test_a_wrong_trace_is_refused_in_one_line(unlike, tmp_path, text, said):
    with pytest.raises(InputError, match=said) as found:
        experiment(unlike, sampling=trace(tmp_path, text))
    assert "\n" not in str(found.value)


def test_a_trace_that_is_too_large_is_not_read(unlike, tmp_path, monkeypatch):
    home = importlib.import_module("fedparity.run.sampling.available")
    monkeypatch.setattr(home, "MOST_ROWS", 6)
    with pytest.raises(InputError, match="more than 6 rows"):
        experiment(unlike, sampling=trace(tmp_path))
    monkeypatch.setattr(home, "LARGEST_FILE", 10)
    with pytest.raises(InputError, match="too large"):
        experiment(unlike, sampling=trace(tmp_path))


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        ("size", "size"),
        ("size_replaced", "size_replaced"),
        ("power_of_choice(candidates=5)", "power_of_choice(candidates=5, signal='fresh')"),
        (PowerOfChoice(candidates=5), "power_of_choice(candidates=5, signal='fresh')"),
        (Available(share=0.5), "available(file=None, share=0.5, period=24)"),
    ],
)
def test_an_experiment_file_has_the_sampling_with_all_settings(tmp_path, sampling, text):
    federation = unlike_clients(SIZES)
    made = experiment(federation, sampling=sampling, rounds=1)
    made.run(out=tmp_path / "run")
    told = yaml.safe_load((tmp_path / "run" / "experiment.yaml").read_text())
    assert told["sampling"] == text
    assert read(text) == made.sampling == experiment(federation, sampling=text).sampling


class Interrupted(Exception):
    pass


class StopAt(Silent):
    """Interrupts a run when so many rounds are done."""

    def __init__(self, done: int) -> None:
        self.done = done

    def advance(self, done: int, note: str = "") -> None:
        if done == self.done:
            raise Interrupted


@pytest.mark.parametrize("done", [1, 3, 5])
@pytest.mark.parametrize(
    "sampling",
    [
        "power_of_choice(candidates=6)",
        "power_of_choice(candidates=6, signal=stale)",
        "available(share=0.4, period=3)",
        "size_replaced",
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, sampling, done):
    made = experiment(sampling=sampling, checkpoint_every=2, evaluate_every=2, drop=0.2)
    made.run(out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        made.run(out=tmp_path / "parts", watch=StopAt(done))
    made.resume(tmp_path / "parts")
    for file in ("model.safetensors", "checkpoint/state.safetensors"):
        mine, theirs = (load_file(tmp_path / run / file) for run in ("parts", "whole"))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert ("sampling/losses" in theirs) == ("stale" in sampling)
    for table in ("history", "clients"):
        mine, theirs = (
            pd.read_parquet(tmp_path / run / f"{table}.parquet") for run in ("parts", "whole")
        )
        pd.testing.assert_frame_equal(mine, theirs)


def test_a_run_is_not_resumed_with_another_sampling_or_trace(unlike, tmp_path):
    experiment(unlike, sampling=trace(tmp_path), rounds=2).run(out=tmp_path / "run")
    with pytest.raises(InputError, match="its sampling is 'available "):
        experiment(unlike, sampling="uniform", rounds=4).resume(tmp_path / "run")
    changed = experiment(unlike, sampling=trace(tmp_path, TRACE + "3,0\n"), rounds=4)
    with pytest.raises(InputError, match="its sampling is 'available "):
        changed.resume(tmp_path / "run")
    moved = tmp_path / "moved.csv"
    moved.write_text(TRACE)
    again = experiment(unlike, sampling=Available(file=str(moved)), rounds=4)
    assert again.resume(tmp_path / "run").rounds == 4


def test_a_sampling_of_ones_own_keeps_what_it_remembers(unlike):
    class InTurn(Sampling):
        name, ahead = "in_turn", False

        def init(self, who):
            return {"next": torch.zeros((), dtype=torch.int64)}

        def draw(self, round, state, who, losses):
            first = int(state["next"])
            found = np.sort(np.arange(first, first + who.cohort) % len(who))
            return found, {"next": state["next"] + who.cohort}

    found = cohorts(experiment(unlike, sampling=InTurn(), rounds=3))
    assert found == [[0, 1, 2], [0, 1, 3], [0, 2, 3]]


def test_every_sampling_is_in_the_table_under_its_name():
    ours = [kind for kind in Sampling.__subclasses__() if kind.__module__.startswith("fedparity.")]
    assert {kind.name for kind in ours} == set(SAMPLINGS)


@pytest.mark.parametrize("module", ["", ".plain", ".power_of_choice", ".available"])
def test_examples_print_what_they_say(module):
    found = doctest.testmod(importlib.import_module(f"fedparity.run.sampling{module}"))
    assert found.attempted
    assert not found.failed
