"""dp_client: what leaves a client is bounded, what the server makes of it is noisy and counted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch
from scripted import FIXTURE, Script, W, after, bench, small_net, vector
from torch import Tensor

import fedparity as fp
from fedparity.errors import FedparityError, InputError
from fedparity.method import Client, Finish, Part, Tensors
from fedparity.method.messages import Down, Replies
from fedparity.parts import DPClient, DPLosses, Scaffold
from fedparity.run.driver import Run
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients
from fedparity.toolbox.accounting import Mechanism, epsilon

pytest.importorskip("dp_accounting")

SOLVER = fp.Solver(lr=0.3, steps=3, batch=4)
TEN = unlike_clients((4, 6, 3, 5, 7, 4, 6, 3, 5, 7))


def sent(algorithm: list[Part], **conditions: object) -> Replies:
    return bench(TEN, algorithm, solver=SOLVER, model=small_net, **conditions).advance()


def norms(replies: Replies, *vectors: Tensor) -> Tensor:
    return torch.cat([replies.deltas, *vectors], 1).norm(dim=1)


# The update


def test_without_clipping_and_noise_it_is_uniform_fedavg_whatever_the_sizes():
    made = [
        after(bench(TEN, text, solver=SOLVER, model=small_net, weighting="size"), 2)
        for text in ("dp_client(clip=inf, noise=0)", "uniform")
    ]
    torch.testing.assert_close(*made, atol=1e-14, rtol=0)


def test_updates_inside_the_bound_stay_what_they_are():
    made = [sent([part]).deltas for part in (DPClient(clip=50.0, noise=0.0), fp.parts.Uniform())]
    assert torch.equal(*made)


def test_updates_outside_the_bound_are_shortened_to_it():
    free = sent([DPClient(clip=50.0, noise=0.0)]).deltas
    bound = float(free.norm(dim=1).median())
    clipped = sent([DPClient(clip=bound, noise=0.0)]).deltas
    torch.testing.assert_close(clipped.norm(dim=1), free.norm(dim=1).clamp_max(bound))
    torch.testing.assert_close(
        torch.nn.functional.cosine_similarity(clipped, free), torch.ones(10).double()
    )


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    "order", [[Scaffold(), DPClient(clip=0.1)], [DPClient(clip=0.1), Scaffold()]]
)
def test_no_vector_of_scaffold_leaves_a_client_unclipped(order, engine):
    free = sent([Scaffold()], engine=engine)
    assert (norms(free, free.reports["scaffold"]["dc"]) > 0.1).all()
    found = sent(order, engine=engine)
    # All that a reply has: the update, buffers, and every report of every part.
    rest = [value.flatten(1) for told in found.reports.values() for value in told.values()]
    whole = norms(found, found.buffers, *rest)
    torch.testing.assert_close(whole, torch.full_like(whole, 0.1))
    assert {part: set(told) for part, told in found.reports.items()} == {"scaffold": {"dc"}}


def test_a_report_that_nobody_declared_does_not_leave():
    class Leak(Part):
        name = "leak"

        def finish(self, delta: Tensor, c: Client) -> Finish:
            return Finish(delta, {"all": c.end})

    with pytest.raises(FedparityError, match="'leak' reports 'all', which its `reports` do not"):
        sent([Leak(), DPClient()])


@pytest.mark.filterwarnings("ignore:.*gives no privacy")
def test_the_server_adds_noise_to_the_sum_and_divides_by_the_clients_asked():
    script = Script([DPClient(clip=2.0, noise=1.5, seeded=True)], cohort=4)
    x = script.play(FIXTURE)
    drawn = Script([]).context
    noise = type(drawn)(**{**vars(drawn), "round": 1}).noise("dp_client", 2)
    # three of four answer; the norms are below the bound
    torch.testing.assert_close(x, vector(*W) + (FIXTURE.sum(0) + 1.5 * 2.0 * noise) / 4)


def test_the_noise_of_the_server_has_the_size_it_says():
    script = Script([DPClient(clip=2.0, noise=3.0)], vector(*[0.0] * 20000), n=(5, 5, 5, 5))
    first = script.play(torch.zeros(4, 20000, dtype=torch.float64)).clone()
    second = script.play(torch.zeros(4, 20000, dtype=torch.float64)) - first
    # z C / m = 1.5; the standard error of a standard deviation is 1.5 / sqrt(40000)
    assert float(first.std()) == pytest.approx(1.5, abs=0.03)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.03


def test_noise_of_the_clients_is_of_each_by_itself_and_of_the_size_it_says():
    settings = {"clip": 0.2, "where": "clients"}
    still, noisy = (sent([DPClient(noise=z, **settings)]) for z in (1e-12, 2.0))
    noise = noisy.deltas - still.deltas
    assert float(noise.std()) == pytest.approx(0.4, rel=0.15)  # 570 numbers
    across = torch.corrcoef(noise)
    assert float((across - torch.eye(10)).abs().max()) < 0.6
    assert not torch.equal(noise[0], noise[1])


class Twice(Part):
    """Reports the same vector in both exchanges of a round."""

    name = "twice"
    reports = {"probe": fp.method.Vector(), "train": fp.method.Vector()}

    def probe(self, c: Client) -> Tensors:
        return {"probe": 0 * c.x}

    def plan(self, s: Tensors, probe: Tensors, ctx: fp.method.Context) -> fp.method.Plan:
        return fp.method.Plan(each={"seen": probe["probe"]})

    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(0 * delta, {"train": c.down["seen"]})


def test_every_exchange_has_noise_of_its_own():
    part = DPClient(clip=1.0, where="clients")
    found = sent([Twice(), part])
    # the probe's noise comes back clipped to 1, behind the noise of the update and under another
    back = found.reports["twice"]["train"] - found.deltas
    torch.testing.assert_close(
        torch.nn.functional.cosine_similarity(back, found.deltas),
        torch.full((10,), -0.7).double(),
        atol=0.35,
        rtol=0,
    )


@pytest.mark.parametrize("cap", [1.0, 2.0])
def test_weights_of_other_parts_are_taken_up_to_the_cap(cap):
    script = Script([fp.parts.FedEBA(tau=0.5, floor=None), DPClient(clip=9.0, noise=0.0, cap=cap)])
    # the weights of the fixture are 0.114195, 0.843795, 0.042010; the cap is cap / 3
    weights = vector(0.114195, 0.843795, 0.042010).clamp_max(cap / 3)
    x = script.play(FIXTURE, loss=(1.0, 2.0, 0.5))
    torch.testing.assert_close(x, vector(*W) + weights @ FIXTURE, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("inside", "moved"), [((1, 1, 1), 0.9048374), ((0, 0, 0), 1.1051709)])
def test_the_bound_moves_towards_the_quantile(inside, moved):
    part = DPClient(noise=0.0, quantile=0.5, rate=0.2, counted=1e-9)
    script = Script([part])
    script.play(FIXTURE, inside=inside)
    # exp(-0.2 (1 - 0.5)) and exp(-0.2 (0 - 0.5))
    assert float(script.state("dp_client")["clip"]) == pytest.approx(moved)


# The guarantee


def told(algorithm: list[Part] | str, rounds: int = 3, **conditions: object):
    made = bench(TEN, algorithm, solver=SOLVER, model=small_net, **conditions)
    part = next(p for p in made.setup.algorithm.parts if p.name == "dp_client")
    for _ in range(rounds):
        made.advance()
    return part.guarantee(made.server.parts["dp_client"], made.context)


def test_epsilon_is_of_clients_replaced_and_of_cohorts_drawn_without_replacement():
    script = Script([DPClient(noise=4.0)], n=(5,) * 100, cohort=10)
    for _ in range(20):
        script.play(FIXTURE, clients=(3, 4, 9))
    found = DPClient(noise=4.0).guarantee(script.state("dp_client"), script.context)
    # a client that is replaced changes the sum by up to 2C: the multiplier is 4/2
    assert found.delta == pytest.approx(100**-1.1)
    assert found.epsilon == epsilon(((Mechanism(2.0, cohort=(10, 100)), 20),), found.delta)
    assert found.next > found.epsilon
    assert (found.unit, found.against) == ("client", "whoever sees the models")


def test_noise_of_clients_is_counted_for_the_client_asked_most_often_without_amplification():
    script = Script([DPClient(noise=4.0, where="clients", delta=1e-3)], n=(5,) * 9, cohort=3)
    for clients in ((0, 1, 2), (0, 3, 4), (5, 6, 7)):
        script.play(FIXTURE, clients=clients)
    part = DPClient(noise=4.0, where="clients", delta=1e-3)
    found = part.guarantee(script.state("dp_client"), script.context)
    assert found.epsilon == epsilon(((Mechanism(2.0), 2),), 1e-3)
    assert found.against == "the server"


@pytest.mark.parametrize(
    ("text", "asked"), [("dp_client(where=clients)", ["train"]), ("delta_fl+dp_client", ["probe"])]
)
def test_an_exchange_of_too_few_answers_is_counted_all_the_same(text, asked):
    """They have left the clients, and the server makes nothing of them."""
    made = bench(TEN, text, solver=SOLVER, model=small_net)
    phases: list[str] = []

    def ask(down: Down, cohort: Tensor) -> Replies:
        phases.append(down.phase)
        return made.door._nobody(down)

    ctx = replace(made.context, round=1)
    server, replies = made.setup.algorithm.round(made.server, torch.arange(10), ask, ctx)
    assert (phases, replies) == (asked, None)
    assert server.parts["dp_client"]["rounds"].tolist() == [1] * 10
    assert torch.equal(server.x, made.server.x)


def test_who_was_probed_and_then_lost_is_counted():
    """Their report may have left them, and come too late."""
    made = bench(TEN, "delta_fl+dp_client(where=clients)", solver=SOLVER, model=small_net)

    def ask(down: Down, cohort: Tensor) -> Replies:
        return made.door.ask(down, cohort[:6] if down.phase == "probe" else cohort)

    ctx = replace(made.context, round=1)
    server, replies = made.setup.algorithm.round(made.server, torch.arange(10), ask, ctx)
    assert len(replies.clients) <= 6
    assert server.parts["dp_client"]["rounds"].tolist() == [1] * 10


def test_losses_told_to_a_sampling_are_counted_where_too_few_tell_them():
    run = Run(
        fp.Experiment(
            TEN,
            "linear",
            "dp_client+dp_losses",
            2,
            SOLVER,
            sampling="power_of_choice(candidates=5)",
            cohort=2,
            lstar="none",
        ),
        watch=Silent(),
    )
    state = run.open()
    run.door.min_replies = 6
    run.round(state)
    run.close()
    assert state.empty == 1
    assert int(state.server.parts["dp_client"]["rounds"].max()) == 1


@pytest.mark.parametrize("text", ["dp_client", "dp_client(where=clients)", "dp_sgd"])
def test_noise_comes_from_no_known_seed(text):
    one, other = (after(bench(TEN, text, solver=SOLVER, model=small_net), 1) for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", ["dp_client", "dp_client(quantile=0.5,where=clients)", "dp_sgd"])
def test_noise_of_the_runs_seed_can_be_made_again_and_gives_no_privacy(name):
    text = f"{name[:-1]},seeded=True)" if "(" in name else f"{name}(seeded=True)"
    with pytest.warns(UserWarning, match="gives no privacy: noise follows from the run's seed"):
        made = [bench(TEN, text, solver=SOLVER, model=small_net) for _ in range(2)]
    assert torch.equal(*(after(each, 1) for each in made))
    part = made[0].setup.algorithm.parts[0]
    guarantee = part.guarantee(made[0].server.parts[part.name], made[0].context)
    assert guarantee.epsilon is None
    assert "noise follows from the run's seed" in guarantee.because


def test_losses_with_noise_of_the_runs_seed_leave_no_epsilon():
    with pytest.warns(UserWarning, match="'dp_losses' gives no privacy"):
        found = told([fp.parts.FedEBA(), DPClient(cap=2.0), DPLosses(seeded=True)])
    assert found.epsilon is None


def test_the_count_of_adaptive_clipping_is_part_of_epsilon():
    found = told([DPClient(noise=4.0, quantile=0.5, counted=5.0, delta=1e-3)])
    # 2^-2 + 5^-2 = 0.29
    assert found.epsilon == pytest.approx(
        epsilon(((Mechanism(1 / math.sqrt(0.29)), 3),), 1e-3), rel=1e-6
    )


def test_noisy_losses_are_counted_with_the_updates_as_if_everyone_were_asked():
    found = told(
        [fp.parts.FedEBA(), DPClient(noise=4.0, cap=2.0, delta=1e-3), DPLosses(noise=3.0)],
        cohort=5,
    )
    # 2^-2 + 3^-2
    assert found.epsilon == pytest.approx(
        epsilon(((Mechanism((2.0**-2 + 3.0**-2) ** -0.5), 3),), 1e-3), rel=1e-6
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dp_client(noise=0)", "updates leave without noise"),
        ("scaffold+dp_client", "'scaffold' reports the vector 'dc'"),
        ("fedeba+dp_client(cap=2)", "'fedeba' reports its 'loss' without noise: add dp_losses"),
        ("fedeba+dp_client(cap=2)+dp_losses(noise=0)", "'loss' without noise"),
        ("qffl+dp_client(cap=2)+dp_losses", "'qffl' reports its 'norm2', for which there is no"),
        ("pgvc+dp_client(where=clients)", "'pgvc' reports its 'norm'"),
        ("dp_client+varp", "'varp' changes updates before they are summed"),
    ],
)
def test_what_allows_no_epsilon_is_told_in_its_place(text, reason):
    found = told(text, rounds=1)
    assert found.epsilon is None
    assert found.line.startswith("no epsilon: ")
    assert reason in found.line
    assert "\n" not in found.line


@pytest.mark.parametrize(
    "text",
    [
        "dp_client+momentum",
        "prox+dp_client",
        "scaffold+dp_client(where=clients)",
        "dp_client(where=clients)+varp",
        "afl+dp_client(where=clients, cap=2)+dp_losses",
        "prac_fedeba_plus+dp_client(cap=2)+dp_losses",
    ],
)
def test_what_only_goes_on_from_noisy_numbers_keeps_the_epsilon(text):
    assert told(text, rounds=1).epsilon > 0


def test_losses_that_a_sampling_asks_for_need_noise():
    settings = {"cohort": 3, "sampling": "power_of_choice(candidates=5)"}
    assert "the sampling asks" in told("dp_client", 1, **settings).because
    both = told("dp_client(noise=4)+dp_losses(noise=2)", 1, **settings)
    plain = told("dp_client(noise=4)", 1)
    assert both.epsilon > plain.epsilon


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fedeba+dp_client", r"weights of 'fedeba' would be ignored: write dp_client\(cap=3\)"),
        ("dp_client(clip=inf)", "noise in bounds 'clip', which is infinite"),
        ("dp_client(budget=0.5)", "the first round costs epsilon"),
        ("fedeba+dp_client(cap=2, budget=9)", "has a budget, but there is no epsilon: 'fedeba'"),
        ("dp_client+fedfv", "both combine"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_first_round(text, reason):
    with pytest.raises(InputError, match=reason):
        bench(TEN, text, solver=SOLVER, model=small_net)


def test_buffers_are_refused_unless_they_stay():
    def normed(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))

    with pytest.raises(InputError, match="cannot clip the model's buffers"):
        bench(TEN, "dp_client", solver=SOLVER, model=normed)
    bench(TEN, "dp_client", solver=SOLVER, model=normed, buffers="local")


# The run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> fp.Result:
    out = tmp_path_factory.mktemp("budget") / "run"
    text = "dp_client(clip=0.02, noise=8, delta=0.001, budget=3)"
    made = fp.Experiment(
        TEN, small_net, text, rounds=20, solver=SOLVER, lstar="none", evaluate_every=1
    )
    return made.run(out=out)


def test_a_budget_stops_the_run_with_a_word(stopped):
    within = epsilon(((Mechanism(4.0), stopped.rounds),), 1e-3)
    over = epsilon(((Mechanism(4.0), stopped.rounds + 1),), 1e-3)
    assert within <= 3 < over
    assert "over its budget of 3" in stopped.stopped
    assert fp.Result.load(stopped.path).stopped == stopped.stopped


def test_epsilon_is_in_history_summary_log_and_report(stopped):
    spent = epsilon(((Mechanism(4.0), stopped.rounds),), 1e-3)
    rows = stopped.history[stopped.history["metric"] == "client_epsilon"]
    assert rows["value"].is_monotonic_increasing
    assert rows["round"].tolist() == list(range(stopped.rounds + 1))
    assert rows["value"].iloc[-1] == stopped.summary()["client_epsilon"] == spent
    lines = (stopped.path / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["privacy"]["dp_client"]["epsilon"] == spent
    page = (stopped.path / "report.html").read_text()
    assert f"epsilon {spent:.4g} at delta 0.001 for every client" in page
    assert "Ended early" in page
    assert "no epsilon covers them" in page


def test_a_run_without_epsilon_says_why_in_its_place(tmp_path):
    made = fp.Experiment(
        TEN, small_net, "fedeba+dp_client(cap=2)", rounds=1, solver=SOLVER, lstar="none"
    )
    result = made.run(out=tmp_path / "run")
    assert "client_epsilon" not in result.summary()
    assert "no epsilon: &#x27;fedeba&#x27; reports" in (result.path / "report.html").read_text()


def test_a_resumed_run_goes_on_counting(stopped, tmp_path):
    def run(rounds: int) -> fp.Experiment:
        text = "dp_client(clip=0.02, noise=8, delta=0.001)"
        return fp.Experiment(TEN, small_net, text, rounds=rounds, solver=SOLVER, lstar="none")

    run(2).run(out=tmp_path / "run")
    found = run(4).resume(tmp_path / "run").summary()["client_epsilon"]
    assert found == epsilon(((Mechanism(4.0), 4),), 1e-3)
    assert pd.notna(found)


@pytest.fixture
def killed(tmp_path, monkeypatch) -> Callable[[str], fp.Experiment]:
    """Return what kills a run within its third round."""

    def make(text: str) -> fp.Experiment:
        made = fp.Experiment(TEN, small_net, text, rounds=4, solver=SOLVER, lstar="none")
        whole = Run.round

        def round(self, state):
            whole(self, state)
            if state.round == 3:
                raise OSError("the power is gone")

        monkeypatch.setattr(Run, "round", round)
        with pytest.raises(OSError, match="the power is gone"):
            made.run(out=tmp_path / "run")
        monkeypatch.setattr(Run, "round", whole)
        return made

    return make


def test_a_round_that_leaves_clients_twice_takes_the_epsilon_away(killed, tmp_path):
    made = killed("dp_client(clip=0.02, noise=8, delta=0.001)")
    logged = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(logged[-1])["privacy"]["dp_client"]["epsilon"] > 0
    result = made.resume(tmp_path / "run")
    assert result.rounds == 4
    assert "client_epsilon" not in result.summary()
    (told,) = result.privacy
    assert "no epsilon: the run was ended within round 3, which has left clients a second" in told
    again = replace(made, rounds=5).resume(tmp_path / "run")
    assert again.privacy == result.privacy


def test_a_round_that_would_leave_clients_twice_is_refused_under_a_budget(killed, tmp_path):
    made = killed("dp_client(clip=0.02, noise=8, delta=0.001, budget=5)")
    with pytest.raises(InputError, match="within round 3, which would leave clients a second time"):
        made.resume(tmp_path / "run")
