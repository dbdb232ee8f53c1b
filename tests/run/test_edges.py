"""Corners of a run where a number could quietly be another client's, or a result be lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.clients import door
from fedparity.method import Client, Context, Finish, Part, Plan, Tensors
from fedparity.testing import Bench, unlike_clients

SOLVER = fp.Solver(lr=0.1, steps=2, batch=4)


@dataclass(frozen=True)
class Echo(Part):
    """Send every client its id and let it be sent back."""

    name = "echo"

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        assert ctx.steps.tolist() == [2] * len(ctx.clients)
        return Plan(each={"id": ctx.clients.to(ctx.x.dtype)})

    def finish(self, delta: torch.Tensor, c: Client) -> Finish:
        return Finish(delta, {"id": c.down["id"], "noise": c.noise(2)})


@dataclass(frozen=True)
class Noisy(Part):
    """Report a draw made in ``finish``."""

    name = "noisy"

    def finish(self, delta: torch.Tensor, c: Client) -> Finish:
        return Finish(delta, {"noise": c.noise(2)})


def bench(parts, engine: str, **more) -> Bench:
    federation = unlike_clients((6, 5, 4, 7, 8))
    known = {"dtype": "float64", "lstar": "none", "solver": SOLVER, "engine": engine, **more}
    return Bench(fp.Experiment(federation, "linear", parts, **known))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_every_client_gets_its_own_message_when_others_drop_out(engine):
    made = bench([Echo()], engine, drop=0.4, seed=3)
    made.door.drop = 0.4
    seen = set()
    for _ in range(6):
        replies = made.advance()
        assert replies.reports["echo"]["id"].long().tolist() == replies.clients.tolist()
        seen.add(len(replies.clients))
    assert min(seen) < 5


def test_two_parts_draw_different_numbers():
    reports = bench([Echo(), Noisy()], "loop").advance().reports
    assert not torch.equal(reports["echo"]["noise"], reports["noisy"]["noise"])


def test_best_model_keeping_is_refused_where_clients_keep_models_of_their_own():
    with pytest.raises(fp.InputError, match="use keep='last'"):
        fp.Experiment(unlike_clients((20, 30, 40)), "linear", "local", keep="mean_loss")


def test_a_whole_share_is_everyone_and_a_number_is_a_number():
    federation = unlike_clients((6, 5, 4))
    assert fp.Experiment(federation, "linear", cohort=1.0).cohort_size == 3
    assert fp.Experiment(federation, "linear", cohort=1).cohort_size == 1


class Tied(nn.Module):
    """One tensor under two names."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(int(np.prod(shape)), outputs)
        self.second = nn.Linear(int(np.prod(shape)), outputs)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x.flatten(1)) + self.second(x.flatten(1))


def test_a_model_with_tied_weights_is_written(tmp_path):
    experiment = fp.Experiment(unlike_clients(), Tied, rounds=2, solver=SOLVER, lstar="none")
    experiment.run(tmp_path / "run")
    assert (tmp_path / "run" / "clients.parquet").exists()


def test_personal_models_are_evaluated_in_blocks_some_of_which_have_no_example(monkeypatch):
    monkeypatch.setattr(door, "PERSONAL_FLOATS", 1)
    x, y = np.eye(32), np.arange(32) % 2
    federation = fp.Federation.from_arrays(x, y, client=[0] + 30 * [1] + [2])
    result = fp.Experiment(federation, "linear", "local", rounds=1, lstar="none").run()
    assert result.clients["test_loss"].isna().tolist() == [True, False, True]


def test_a_finished_run_that_goes_on_is_unfinished_again(tmp_path):
    federation = unlike_clients((6, 5, 4))
    given = {"solver": SOLVER, "lstar": "none", "checkpoint_every": 1}
    fp.Experiment(federation, "linear", rounds=2, **given).run(tmp_path / "run")

    class Enough(Exception):
        pass

    class Impatient:
        def stage(self, text: str, total: int) -> None:
            pass

        def advance(self, done: int, note: str = "") -> None:
            if done == 4:
                raise Enough

    longer = fp.Experiment(federation, "linear", rounds=6, **given)
    with pytest.raises(Enough):
        longer.resume(tmp_path / "run", Impatient())
    with pytest.raises(fp.InputError, match="not finished"):
        fp.Result.load(tmp_path / "run")
    whole = longer.resume(tmp_path / "run")
    again = fp.Experiment(federation, "linear", rounds=6, **given).run()
    rows = ["round", "client", "split", "metric"]
    counted = whole.history.groupby(rows).size()
    assert counted.max() == 1
    pd.testing.assert_frame_equal(whole.clients, again.clients)


def test_a_reference_of_other_rounds_warns_and_keeps_the_result():
    federation = unlike_clients((20, 30, 40))
    given = {"solver": SOLVER, "lstar": [0.1] * len(federation)}
    short = fp.Experiment(federation, "linear", rounds=2, **given).run()
    with pytest.warns(UserWarning, match="same round budget"):
        longer = fp.Experiment(federation, "linear", rounds=3, **given).run(reference=short)
    assert longer.rounds == 3


def test_a_reference_of_other_weights_is_no_reference():
    # Levelled down by the numbers, but the reference weighed by size.
    levelled = result([1.0, 0.9, 0.8], weights="uniform")
    with pytest.warns(UserWarning, match="run the reference with weighting='uniform'"):
        levelled.warn_of_levelling_down(result([1.0, 0.5, 0.1], weights="size"))


def result(gaps: list[float], rounds: int = 5, **record: str) -> fp.Result:
    count = len(gaps)
    numbers = {f"n_{split}": [10] * count for split in ("train", "validation", "test")}
    names = [f"client-{k}" for k in range(count)]
    table = {"client": names, **numbers, "test_loss": gaps, "test_lstar": [0.0] * count}
    settings = {"algorithm": "any", "record": record}
    return fp.Result(pd.DataFrame(table), pd.DataFrame(), settings, rounds)


def test_levelling_down_is_warned_of_against_a_reference():
    # The variance falls, the worst gap stays, the best gap gets worse.
    with pytest.warns(UserWarning, match="levels down"):
        result([1.0, 0.9, 0.8]).warn_of_levelling_down(result([1.0, 0.5, 0.1]))
    # The worst gap falls: not levelled down, and not a word.
    result([0.9, 0.85, 0.8]).warn_of_levelling_down(result([1.0, 0.5, 0.1]))


@pytest.mark.parametrize(
    ("algorithm", "advice"),
    [
        ("eagle(lam=2)+prox", "lower lam"),
        ("eagle(target_variance=0.01)", "raise target_variance"),
        ("qffl(q=5)", "lower q"),
        ("afl", "lower eta"),
        ("fedfv", "raise alpha"),
        ("fedeba", "raise floor"),
        ("prac_fedeba_plus(floor=None)", "raise tau"),
        ("fedavg", ""),
        ("fedprox", ""),
    ],
)
def test_the_advice_against_levelling_down_is_of_the_method_itself(algorithm, advice):
    made = fp.Experiment(unlike_clients((9, 7)), "linear", algorithm)
    record = made.describe()["record"]
    assert record.get("softens", "") == advice
    levelled = result([1.0, 0.9, 0.8], softens=advice)
    with pytest.warns(UserWarning, match=f"{advice}$" if advice else r"smallest by \+0\.7$"):
        levelled.warn_of_levelling_down(result([1.0, 0.5, 0.1]))


@pytest.mark.filterwarnings("ignore:eagle")
def test_the_variance_that_eagle_reached_is_recorded(tmp_path):
    federation = unlike_clients((20, 30, 40))
    rule = "best_validation(rounds=3)"
    made = fp.Experiment(federation, "linear", "eagle(target_variance=0.01)", rounds=3, lstar=rule)
    made.run(tmp_path / "run")
    told = fp.Result.load(tmp_path / "run").settings["record"]["told"]["eagle"]
    assert told["lam"] >= 0
    assert told["gap_variance"] > 0
