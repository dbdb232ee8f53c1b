"""What goes wrong on a client: who, when and where is said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.errors import ClientError
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench, unlike_clients


class Clumsy(fp.Part):
    """Fails on one client in one round, in one of its hooks."""

    name = "clumsy"
    where = "grad"

    @property
    def hooks(self):
        return frozenset({self.where})

    def _fail(self, c):
        if c.round == 2 and int(c.n) == 4:
            raise ZeroDivisionError("what now")

    def probe(self, c):
        self._fail(c)
        return {}

    def start(self, x, c):
        self._fail(c)
        return x

    def loss(self, losses, output, target, c):
        self._fail(c)
        return losses

    def grad(self, g, x, c):
        self._fail(c)
        return g

    def finish(self, delta, c):
        self._fail(c)
        return fp.Finish(delta)


def experiment(federation, algorithm, **more) -> Experiment:
    known = {"lstar": "none", "rounds": 3, "solver": fp.Solver(lr=0.1, steps=1), **more}
    return Experiment(federation, "linear", algorithm, **known)


@pytest.mark.parametrize("where", ["probe", "start", "loss", "grad", "finish"])
def test_an_error_names_client_round_phase_and_part(unlike, where):
    part = type("Clumsy", (Clumsy,), {"where": where})()
    with pytest.raises(ClientError) as found:
        experiment(unlike, [part], engine="loop").run()
    said = str(found.value)
    phase = "probe" if where == "probe" else "train"
    assert said.startswith(f"client '1', round 2, phase {phase}, part 'clumsy'")
    assert where in said or "_fail" in said
    assert said.endswith("ZeroDivisionError: what now")
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_an_error_of_the_model_names_the_client(unlike):
    class Fragile(nn.Linear):
        def forward(self, x):
            if self.training and len(x) == 4:
                raise ValueError("four is too many")
            return super().forward(x)

    made = Experiment(unlike, lambda: Fragile(3, 3), lstar="none", rounds=1, engine="loop")
    with pytest.raises(ClientError, match="client '1', round 1, phase train: ValueError: four"):
        made.run()


def test_a_fact_that_was_not_asked_for_is_said(unlike):
    class Curious(fp.Part):
        """Uses the loss without listing it."""

        name = "curious"

        def finish(self, delta, c):
            return fp.Finish(delta, {"loss": c.loss})

    for engine in ("loop", "vmap"):
        with pytest.raises(ClientError, match=r"part 'curious'.*c\.loss is not known here"):
            experiment(unlike, [Curious()], engine=engine).run()


def test_an_error_in_a_stack_names_round_phase_and_part(unlike):
    class Rowdy(fp.Part):
        """Fails under vmap."""

        name = "rowdy"

        def grad(self, g, x, c):
            return g * float(g.norm())

    with pytest.raises(ClientError, match=r"engine 'loop' names one.*round 1.*part 'rowdy' \(grad"):
        experiment(unlike, [Rowdy()], engine="vmap").run()


def poisoned(sizes=(6, 5, 4), client: int = 1) -> fp.Federation:
    """A federation one client of which has a target so large that its update overflows."""
    federation = unlike_clients(sizes)
    x, owner = federation.train.x.numpy(), federation.train.owner.numpy()
    y = x.sum(1)
    y[owner == client] = 1e200
    part = ["train"] * len(x)
    return fp.Federation.from_arrays(x, y, owner, part, kind="values")


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_an_update_that_is_not_finite_is_left_out_with_a_warning(engine):
    federation = poisoned()
    solver = fp.Solver(lr=1e150, steps=1)
    made = Experiment(
        federation, "linear", lstar="none", rounds=1, engine=engine, solver=solver, dtype="float64"
    )
    with pytest.warns(UserWarning, match="client '1' is not finite and left out"):
        replies = Bench(made).advance()
    assert replies.clients.tolist() == [0, 2]
    assert bool(replies.deltas.isfinite().all())


class Halves(fp.Part):
    """Reports, before training, a number that is infinite of the client with five examples."""

    name = "halves"

    def probe(self, c):
        return {"half": 1 / (c.n - 5)}

    def plan(self, s, probe, ctx):
        assert probe["half"].isfinite().all()
        return fp.Plan()


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_who_reports_what_is_not_finite_before_training_is_left_out(engine):
    made = Experiment(unlike_clients((6, 5, 4)), "linear", [Halves()], lstar="none", engine=engine)
    with pytest.warns(UserWarning, match="the report of client '1' is not finite and left out"):
        replies = Bench(made).advance()
    assert replies.clients.tolist() == [0, 2]


def test_a_reply_that_is_left_out_is_recorded_and_keeps_its_old_state():
    federation = poisoned()
    made = Experiment(
        federation,
        "linear",
        "scaffold",
        lstar="none",
        rounds=1,
        engine="loop",
        solver=fp.Solver(lr=1e150, steps=1),
        dtype="float64",
    )
    bench = Bench(made)
    with pytest.warns(UserWarning, match="left out"):
        bench.advance()
    assert bench.door.attendance.answered == [0, 2]
    assert bench.door.attendance.failed == {1: "what it sent is not finite"}
    kept = bench.tensors()["client/scaffold/c"]
    assert float(kept[1].abs().sum()) == 0
    assert float(kept[0].abs().sum()) > 0


def test_too_few_finite_replies_are_an_empty_round():
    made = Experiment(
        poisoned((6, 5)),
        "linear",
        lstar="none",
        engine="loop",
        solver=fp.Solver(lr=1e150, steps=1),
        dtype="float64",
    )
    bench = Bench(made)
    bench.door.min_replies = 2
    x = bench.server.x
    with pytest.warns(UserWarning, match="left out"):
        assert not len(bench.advance().clients)
    assert torch.equal(bench.server.x, x)
    assert bench.door.attendance.answered == [0]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_when_no_update_is_finite_the_run_ends_with_the_remedy(engine):
    made = experiment(
        poisoned((5,), client=0),
        "fedavg",
        engine=engine,
        dtype="float64",
        solver=fp.Solver(lr=1e150, steps=1),
    )
    with pytest.warns(UserWarning, match=r"diverged: round 1: every update is infinite or NaN"):
        result = made.run()
    assert result.diverged is not None
    assert "lower the learning rate" in result.diverged
    assert result.rounds == 0
