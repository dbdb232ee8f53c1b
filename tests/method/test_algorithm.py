"""Composition of parts and the order of a round."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.learning.layout import Layout
from fedparity.method import Context, Part
from fedparity.method.algorithm import Algorithm, Replies, Server, average_buffers, ctx_for
from fedparity.parts import AFL, QFFL, Eagle, Momentum, Prox
from fedparity.testing import Trial


def context(n: tuple[int, ...] = (50, 25, 25), module: nn.Module | None = None, **more) -> Context:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    sizes = torch.tensor(n)
    known = {
        "round": 1,
        "population": len(n),
        "sizes": sizes,
        "clients": torch.arange(len(n)),
        "prior": x.new_zeros(0),
        "steps": torch.ones_like(sizes),
        "lr": 0.1,
        "x": x,
        "layout": Layout(module or nn.Linear(2, 1, bias=False)),
    }
    return Context(**{**known, **more})


class Traced(Part):
    """Writes down which server hooks are called."""

    name = "traced"
    calls: list[str] = []

    def probe(self, c):
        return {}

    def plan(self, s, probe, ctx):
        self.calls.append("plan")
        return fp.Plan()

    def weigh(self, w, up, s, ctx):
        self.calls.append("weigh")
        return w, s

    def combine(self, deltas, w, up, s, ctx):
        self.calls.append("combine")
        return w @ deltas, s

    def step(self, direction, up, s, ctx):
        self.calls.append("step")
        return direction, s


def replying(deltas: Tensor, asked: list[str] | None = None, clients: tuple[int, ...] = ()):
    def ask(down, cohort):
        if asked is not None:
            asked.append(down.phase)
        ids = torch.tensor(clients, dtype=torch.int64)
        return Replies(ids, torch.ones_like(ids), {}, deltas[ids], deltas.new_zeros(len(ids), 0))

    return ask


def test_a_round_is_probe_plan_train_weigh_combine_step():
    Traced.calls = []
    algorithm, asked = Algorithm([Traced()]), Traced.calls
    ctx = context()
    server = algorithm.init(ctx.x, torch.zeros(0), ctx)
    deltas = torch.ones(3, 2, dtype=torch.float64)
    algorithm.round(server, torch.arange(3), replying(deltas, asked, (0, 1, 2)), ctx)
    assert Traced.calls == ["probe", "plan", "train", "weigh", "combine", "step"]


def test_without_a_reply_nothing_changes():
    algorithm = Algorithm([Momentum()])
    ctx = context()
    server = algorithm.init(ctx.x, torch.zeros(0), ctx)
    after, replies = algorithm.round(
        server, torch.arange(3), replying(torch.zeros(3, 2).double()), ctx
    )
    assert replies is None
    assert after is server


def test_the_direction_is_taken_times_the_server_rate():
    deltas = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]).double()
    ctx = context()
    server = Server(ctx.x, torch.zeros(0), {})
    ask = replying(deltas, clients=(0, 1, 2))
    after, _ = Algorithm().round(server, torch.arange(3), ask, ctx, server_lr=2.0)
    # (1, 2) + 2 (0.5, 0.25)
    assert after.x.tolist() == [2.0, 2.5]


def test_the_prior_is_renormalised_over_those_who_answer():
    ctx = ctx_for(context(), torch.tensor([0, 2]))
    torch.testing.assert_close(ctx.prior, torch.tensor([2 / 3, 1 / 3]).double())
    assert ctx.n.tolist() == [50, 25]
    uniform = ctx_for(context(by_size=False), torch.tensor([0, 2]))
    assert uniform.prior.tolist() == [0.5, 0.5]


class Combining(Part):
    name = "combining"
    ignores_weights = True

    def combine(self, deltas, w, up, s, ctx):
        return deltas.mean(0), s


class AlsoCombining(Combining):
    name = "also_combining"


def test_all_problems_of_a_composition_are_reported_at_once():
    with pytest.raises(InputError) as found:
        Algorithm([Prox(), Prox(), AFL(), QFFL(), Combining(), AlsoCombining()])
    said = str(found.value)
    assert "'prox' stands twice" in said
    assert "'qffl' would overwrite the weights of 'afl'" in said
    assert "'combining' and 'also_combining' both combine" in said
    assert "the weights of 'afl' would be ignored" in said


def test_parts_that_need_other_conditions_are_refused_together(unlike):
    class Demanding(Part):
        name = "demanding"
        needs = frozenset({"full_participation", "plain_sgd"})

    trial = Trial(federation=unlike, solver=fp.Solver(momentum=0.5))
    with pytest.raises(InputError, match=r"every client.*; .*plain SGD"):
        trial.experiment([Demanding()], cohort=2)


def test_a_part_that_refuses_the_experiment_does_so_before_anything_is_written(unlike, tmp_path):
    class Picky(Part):
        name = "picky"

        def validate(self, ctx):
            raise InputError("'picky' wants ten clients")

    with pytest.raises(InputError, match="ten clients"):
        Trial(federation=unlike).experiment([Picky()]).run(out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_what_is_no_part_is_refused_with_the_remedy():
    class Hiding(Part):
        name = "hiding"

        def __init__(self, strength: float) -> None:
            self.strength = strength

    for wrong, said in (
        (Prox, r"write Prox\(\.\.\.\)"),
        ("prox", "'prox' is not a part"),
        (Hiding(1.0), "frozen dataclass"),
    ):
        with pytest.raises(InputError, match=said):
            Algorithm([wrong])


def made(name: str = "mine", **body: object) -> Part:
    """Return a part whose class has this body."""
    return type("Mine", (Part,), {"name": name, **body})()


def hook(self, *given):
    return given


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"weight": hook}, "a method 'weight', which nobody calls: did you mean the hook 'weigh'?"),
        ({"weigh": hook, "finsh": hook}, "did you mean the hook 'finish'?"),
        ({"measure": hook}, "'measure', which nobody calls: did you mean the hook 'probe'?"),
        ({"name": None, "weigh": hook}, "Mine has no name: write name = 'a_word' in the class"),
        ({"name": "two words", "weigh": hook}, "Mine has no name"),
        ({"weigh": hook, "reads": {"los"}}, "reads the unknown fact 'los': did you mean 'loss'?"),
        ({"at": hook, "points": {"there": {"los"}}}, "the unknown fact 'los': did you mean"),
        ({"at": hook, "points": {"there": {"lstar"}}}, "wants 'lstar' at its point 'there'"),
        ({"own_facts": {"loss": hook}}, "a fact of its own 'loss', which has a meaning already"),
        ({}, "'mine' does nothing: it has none of the hooks"),
    ],
)
def test_what_a_part_got_wrong_is_one_line_before_anything_runs(body, told):
    with pytest.raises(InputError) as refused:
        Algorithm([made(**body)])
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_method_of_its_own_with_an_underscore_is_the_parts_own_affair():
    assert Algorithm([made(weigh=hook, _weight=hook)]).having("weigh")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("fedavg", []),
        ("prox", ["prox"]),
        ("fedprox(mu=0.5)+momentum", ["prox", "momentum"]),
        ("eagle(lam=1/2)+prox(mu=0.1)", ["eagle", "prox"]),
    ],
)
def test_names_and_parts_are_read_alike(text, names):
    assert [part.name for part in fp.algorithm(text).parts] == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("egale", "did you mean 'eagle'"),
        ("eagle(lamb=1)", "did you mean 'lam'"),
        ("eagle(lam=-1)", "greater than or equal to 0"),
        ("eagle(lam=inf)", "finite"),
        ("afl+qffl", "overwrite"),
        ("prox+fedprox", "twice"),
    ],
)
def test_a_wrong_algorithm_is_one_line_with_the_remedy(text, said):
    with pytest.raises(InputError, match=said) as found:
        fp.algorithm(text)
    assert "\n" not in str(found.value)


def test_a_list_of_parts_and_its_text_are_the_same_algorithm():
    parts = [Eagle(lam=2.0), Momentum()]
    assert fp.algorithm(parts).parts == fp.algorithm("eagle(lam=2)+momentum").parts


NORMED = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
# running_mean 2, running_var 2, num_batches_tracked 1
BUFFERS = torch.tensor([[0.0, 0, 1, 1, 5], [1.0, 1, 2, 2, 9], [2.0, 2, 3, 3, 7]]).double()


def test_float_buffers_follow_probability_weights_and_counters_the_maximum():
    ctx = context(module=NORMED)
    weights = torch.tensor([0.25, 0.25, 0.5]).double()
    # 0.25 * 1 + 0.5 * 2 = 1.25 and one more for the variances
    assert average_buffers(BUFFERS, weights, ctx).tolist() == [1.25, 1.25, 2.25, 2.25, 9.0]


@pytest.mark.parametrize("weights", [(1.5, -0.25, -0.25), (0.1, 0.1, 0.1)])
def test_buffers_are_averaged_by_size_where_weights_are_no_probabilities(weights):
    ctx = replace(context(module=NORMED), clients=torch.arange(3))
    found = average_buffers(BUFFERS, torch.tensor(weights).double(), ctx)
    # (50 * 0 + 25 * 1 + 25 * 2) / 100 = 0.75
    assert found.tolist() == [0.75, 0.75, 1.75, 1.75, 9.0]


def test_a_model_without_buffers_has_none_to_average():
    assert average_buffers(torch.zeros(3, 0), torch.ones(3) / 3, context()) is None
