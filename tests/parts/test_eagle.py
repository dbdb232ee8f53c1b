"""EAGLE: weights of the fixture, its objective, and its promise on the paper's clients."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scripted import after, bench, parabolas, vector

import fedparity as fp
from fedparity.learning.layout import Layout
from fedparity.method import Context
from fedparity.method.algorithm import ctx_for
from fedparity.parts import Eagle
from fedparity.run import lstar, lstar_rules
from fedparity.testing import Bench, Trial, unlike_clients

GAPS = (0.1, 0.3, -0.2)
NET = "mlp(hidden=4)"
STEPS = fp.Solver(lr=0.1, steps=3, batch=4)


def context(population: int, clients: list[int]) -> Context:
    x = vector(0.0, 0.0)
    everyone = torch.arange(population)
    whole = Context(
        round=1,
        population=population,
        sizes=torch.ones_like(everyone),
        clients=everyone,
        prior=x.new_zeros(0),
        steps=torch.ones_like(everyone),
        lr=0.1,
        x=x,
        layout=Layout(torch.nn.Linear(2, 1, bias=False)),
    )
    return ctx_for(whole, torch.tensor(clients))


def planned(part: Eagle, gaps=GAPS, asked: list[int] | None = None) -> torch.Tensor:
    """Return the weights of those asked when these are the known gaps (NaN: not known)."""
    clients = list(range(len(gaps))) if asked is None else asked
    ctx = context(len(gaps), clients)
    state = {**part.init_server(ctx.x, ctx), "gaps": vector(*gaps)}
    by_plan = part.plan(state, {}, ctx).each["weight"]
    reported = {"gap": vector(*np.zeros(len(clients)))}  # of this round: not looked at yet
    by_server, _ = part.weigh(ctx.prior, reported, state, ctx)
    torch.testing.assert_close(by_server * len(clients), by_plan, rtol=1e-14, atol=0)
    return by_plan


def close(found: torch.Tensor, *wanted: float) -> None:
    torch.testing.assert_close(found, vector(*wanted), atol=1e-6, rtol=0)


def test_fixture():
    # mean 0.2/3; v = 1 + 4 * 0.5 * 3/2 (r - mean) = 1 + 3 r - 0.2; |v| = sqrt(4.14) = 2.034699
    close(planned(Eagle(lam=0.5, normalise="none")), 1.1, 1.7, 0.2)
    close(planned(Eagle(lam=0.5, normalise="l2_unit")), 0.540621, 0.835504, 0.098295)
    close(planned(Eagle(lam=0.5, normalise="l2_sqrtK")), 0.936382, 1.447136, 0.170251)


def test_the_mean_of_the_raw_weights_is_one_and_their_norm_as_the_sheet_says():
    gaps, lam, K = np.array([0.4, -0.1, 0.25, 0.9]), 0.7, 4
    v = Eagle(lam=lam).raw_weights(gaps)
    assert float(v.mean()) == pytest.approx(1, abs=1e-14)
    norm = (K * (1 + 16 * lam**2 * K / (K - 1) * gaps.var(ddof=1))) ** 0.5
    assert float(np.linalg.norm(v)) == pytest.approx(norm, rel=1e-12)


def test_adding_a_constant_to_all_gaps_changes_nothing():
    one, other = (planned(Eagle(lam=0.5), [g + c for g in GAPS]) for c in (0.0, 5.0))
    torch.testing.assert_close(one, other)


def test_clients_in_another_order_have_the_same_weights():
    found = planned(Eagle(lam=0.5), [GAPS[k] for k in (2, 0, 1)])
    torch.testing.assert_close(found, planned(Eagle(lam=0.5))[[2, 0, 1]])


@pytest.mark.parametrize("k", [0, 1, 2])
def test_raising_a_clients_gap_does_not_lower_its_raw_weight(k):
    higher = [g + 0.2 * (j == k) for j, g in enumerate(GAPS)]
    part = Eagle(lam=0.3, normalise="none")
    assert float(planned(part, higher)[k]) > float(planned(part)[k])


@pytest.mark.parametrize("normalise", ["l2_sqrtK", "none"])
def test_equal_gaps_are_fedavg(normalise):
    close(planned(Eagle(lam=2.0, normalise=normalise), (0.3, 0.3, 0.3)), 1.0, 1.0, 1.0)


def test_the_first_round_is_normalised_like_the_others():
    unknown = (np.nan,) * 4
    close(planned(Eagle(normalise="l2_unit"), unknown), 0.5, 0.5, 0.5, 0.5)
    close(planned(Eagle(normalise="l2_sqrtK"), unknown), 1.0, 1.0, 1.0, 1.0)


def test_without_trust_region_negative_weights_are_kept_with_a_warning():
    # r < mean - (K - 1) / (4 lam K) = 0.2/3 - 1/12: the third client climbs
    part = Eagle(lam=2.0, normalise="none", v_min=None)
    with pytest.warns(UserWarning, match="negative weight"):
        close(planned(part), 1.4, 3.8, -2.2)


def test_weights_of_a_small_enough_lambda_are_not_negative():
    bound = 2 / (4 * 3 * (sum(GAPS) / 3 - min(GAPS)))
    lowest = planned(Eagle(lam=bound * (1 - 1e-9), normalise="none")).min()
    assert 0 <= float(lowest) < 1e-6
    with pytest.warns(UserWarning, match="negative weight"):
        planned(Eagle(lam=bound * 1.01, v_min=None))


def test_the_trust_region_lowers_lambda_until_no_weight_is_below_v_min():
    # mean - least = 0.2/3 + 0.2 = 4/15; lambda_t = (1 - v_min) * 2 / (4 * 3 * 4/15) = 0.625 (1 -
    # v_min); v = 1 + 4 * 0.625 * 3/2 (r - mean) = 1 + 3.75 r - 0.25
    close(planned(Eagle(lam=2.0, normalise="none")), 1.125, 1.875, 0.0)
    # v_min = 1/2: lambda_t = 0.3125, v = 1 + 1.875 r - 0.125
    close(planned(Eagle(lam=2.0, v_min=0.5, normalise="none")), 1.0625, 1.4375, 0.5)
    assert Eagle(lam=2.0).trusted(2.0, np.array(GAPS)) == pytest.approx(0.625)


@pytest.mark.parametrize("lam", [1.0, 10.0, 1e6])
def test_under_the_trust_region_the_mean_weight_stays_one(lam):
    gaps = np.random.default_rng(0).normal(size=7)
    found = planned(Eagle(lam=lam, normalise="none"), gaps)
    assert float(found.mean()) == pytest.approx(1, abs=1e-12)
    assert float(found.min()) >= 0


def test_the_trust_region_is_idle_where_no_weight_is_below_it():
    one, paper = (planned(Eagle(lam=0.5, v_min=v)) for v in (0.0, None))
    assert torch.equal(one, paper)
    close(planned(Eagle(lam=3.0, v_min=1.0)), 1.0, 1.0, 1.0)


def test_equal_gaps_need_no_trust_region():
    close(planned(Eagle(lam=1e9), (0.3, 0.3, 0.3)), 1.0, 1.0, 1.0)


def test_the_largest_weight_can_be_bounded():
    close(planned(Eagle(lam=0.5, max_ratio=1.5, normalise="none")), 1.1, 1.5, 0.2)


def test_absent_clients_count_with_their_last_known_gap():
    # All three gaps are known; only clients 0 and 2 are asked.
    close(planned(Eagle(lam=0.5, normalise="none"), asked=[0, 2]), 1.1, 0.2)


def test_weights_are_normalised_over_those_who_take_part():
    # clients 0 and 2 of v = (1.1, 1.7, 0.2): norm sqrt(2) instead of sqrt(1.25)
    scale = (2 / 1.25) ** 0.5
    close(planned(Eagle(lam=0.5), asked=[0, 2]), 1.1 * scale, 0.2 * scale)
    close(planned(Eagle(lam=0.5, normalise="l2_unit"), asked=[1]), 1.0)


def test_a_cohort_of_those_who_need_it_least_still_trains():
    close(planned(Eagle(lam=2.0), asked=[2]), 1.0)  # its weight is 0 before normalisation


def test_only_clients_with_a_known_gap_count():
    # K = 2: v = 1 + 4 * 0.5 * 2 (r - 0.2) for gaps 0.1 and 0.3; the third is weighted 1
    found = planned(Eagle(lam=0.5, normalise="none"), (0.1, 0.3, np.nan))
    close(found, 0.6, 1.4, 1.0)


def test_a_single_known_gap_is_fedavg():
    close(planned(Eagle(lam=3.0, normalise="none"), (0.4, np.nan, np.nan)), 1.0, 1.0, 1.0)


def experiment(federation, algorithm, engine="loop", solver=STEPS, **more) -> Bench:
    known = {"model": NET, "lstar": "best_validation(rounds=3)", "weighting": "uniform", **more}
    return bench(federation, algorithm, solver=solver, engine=engine, **known)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("weights", ["stale", "fresh"])
@pytest.mark.parametrize("normalise", ["l2_sqrtK", "none"])
def test_without_lambda_it_is_uniform_fedavg(unlike, engine, weights, normalise):
    text = f"eagle(lam=0, weights={weights}, normalise={normalise})"
    found = after(experiment(unlike, text, engine), 3)
    uniform = after(experiment(unlike, "fedavg", engine), 3)
    torch.testing.assert_close(found, uniform, rtol=1e-12, atol=1e-14)


def test_the_papers_normalisation_is_ours_at_another_learning_rate(unlike):
    # Four clients: weights of norm 1 at twice the learning rate.
    unit = experiment(
        unlike,
        "eagle(lam=0.05, normalise=l2_unit, apply=gradient)",
        solver=fp.Solver(lr=0.2, steps=3, batch=4),
    )
    ours = experiment(
        unlike, "eagle(lam=0.05, apply=gradient)", solver=fp.Solver(lr=0.1, steps=3, batch=4)
    )
    ours.setup = replace(ours.setup, lstar=unit.setup.lstar)
    ours.engine.setup = ours.setup
    torch.testing.assert_close(after(unit, 3), after(ours, 3), rtol=1e-12, atol=1e-14)


def test_one_client_is_fedavg():
    one = unlike_clients((7,))
    for text in ("eagle(lam=3)", "eagle(lam=3, weights=fresh)"):
        found, fedavg = (after(experiment(one, a), 3) for a in (text, "fedavg"))
        torch.testing.assert_close(found, fedavg, rtol=1e-12, atol=1e-14)


def test_the_first_round_of_stale_weights_is_fedavg(unlike):
    found, fedavg = (after(experiment(unlike, a)) for a in ("eagle(lam=3)", "fedavg"))
    torch.testing.assert_close(found, fedavg, rtol=1e-12, atol=1e-14)


def test_stale_gaps_are_those_of_the_round_before_and_fresh_ones_of_this_one(unlike):
    stale, fresh = (experiment(unlike, f"eagle(lam=0.01, weights={w})") for w in ("stale", "fresh"))

    def gaps(made: Bench) -> torch.Tensor:
        module = made.setup.layout.write(made.setup.module, made.server.x)
        split = unlike.validation
        losses = torch.stack(
            [
                torch.nn.functional.cross_entropy(module(x), y)
                for x, y in (
                    split.client(k) if split.sizes[k] else unlike.train.client(k) for k in range(4)
                )
            ]
        )
        return losses.detach() - made.setup.lstar

    for made in (stale, fresh):
        for _ in range(2):
            at = gaps(made)
            made.advance()
            torch.testing.assert_close(made.server.parts["eagle"]["gaps"], at)


def test_gaps_of_absent_clients_stay(unlike):
    made = experiment(unlike, "eagle(lam=0.01)")
    made.advance()
    first = made.server.parts["eagle"]["gaps"]
    made.advance([1, 3])
    second = made.server.parts["eagle"]["gaps"]
    assert torch.equal(second[[0, 2]], first[[0, 2]])
    assert bool((second[[1, 3]] != first[[1, 3]]).all())


def test_a_constant_on_all_best_losses_changes_nothing(unlike):
    made, shifted = (experiment(unlike, "eagle(lam=0.1)") for _ in range(2))
    shifted.setup = replace(shifted.setup, lstar=shifted.setup.lstar + 3.0)
    shifted.engine.setup = shifted.setup
    torch.testing.assert_close(after(made, 4), after(shifted, 4), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("weights", ["stale", "fresh"])
@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_weighted_displacement_is_a_weighted_gradient_for_one_step_of_sgd(
    unlike, engine, weights
):
    one, other = (
        after(
            experiment(
                unlike,
                f"eagle(lam=0.2, weights={weights}, apply={apply})",
                engine,
                solver=fp.Solver(lr=0.3, steps=1),
            ),
            3,
        )
        for apply in ("displacement", "gradient")
    )
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "solver",
    [
        fp.Solver(lr=0.01, steps=3, batch=4, optimizer="adam"),
        fp.Solver(lr=0.1, steps=3, batch=4, clip=1e-3),
    ],
    ids=["adam", "clip"],
)
def test_what_undoes_a_weight_on_the_gradient_leaves_one_on_the_displacement(unlike, solver):
    with pytest.raises(fp.InputError, match=r"undoes.*apply='displacement'"):
        experiment(unlike, "eagle(apply=gradient)", solver=solver)
    made = experiment(unlike, "eagle(lam=50)", solver=solver)
    made.advance()
    start, gaps = made.server.x, made.server.parts["eagle"]["gaps"].numpy()
    deltas = made.advance().deltas
    part = Eagle(lam=50.0)
    v = part.raw_weights(gaps, part.trusted(50.0, gaps))
    v = torch.from_numpy(v * (len(v) / (v @ v)) ** 0.5)
    torch.testing.assert_close(made.server.x - start, v @ deltas / len(v))
    assert not torch.allclose(made.server.x - start, deltas.mean(0), rtol=1e-2, atol=0)


def test_fresh_weights_on_the_displacement_need_no_exchange():
    assert "probe" not in Eagle(weights="fresh").hooks
    assert "probe" in Eagle(weights="fresh", apply="gradient").hooks


def test_it_tells_how_often_lambda_was_lowered_and_how_far_gaps_spread():
    # lambda 2 is lowered to 0.625 (above); the largest spread of gaps so far is 0.5
    part, ctx = Eagle(lam=2.0), context(3, [0, 1, 2])
    state = part.init_server(ctx.x, ctx)
    for gaps in (GAPS, (0.1, 0.1, 0.1)):
        _, state = part.weigh(ctx.prior, {"gap": vector(*gaps)}, state, ctx)
    told = part.tell(state)
    assert (told["lam"], told["lam_used"]) == (2.0, pytest.approx(0.625))
    assert told["capped_share"] == 0.5  # no gap was known in the first round
    assert told["negative_share"] == 0
    assert told["gamma"] == pytest.approx(0.5)
    assert told["step_bound"] == pytest.approx(1 / (1 + 4 * 0.625 * 0.5))
    assert told["gap_variance"] == pytest.approx(0)


def test_it_tells_the_share_of_negative_weights():
    part, ctx = Eagle(lam=2.0, v_min=None), context(3, [0, 1, 2])
    state = {**part.init_server(ctx.x, ctx), "gaps": vector(*GAPS)}
    with pytest.warns(UserWarning, match="negative weight"):
        _, state = part.weigh(ctx.prior, {"gap": vector(*GAPS)}, state, ctx)
    assert part.tell(state)["negative_share"] == pytest.approx(1 / 3)


def test_few_validation_examples_are_warned_of(unlike):
    with pytest.warns(UserWarning, match="4 of 4 clients have fewer than 30 validation examples"):
        experiment(unlike, "eagle")


def objective(made: Bench, x: torch.Tensor, lam: float) -> float:
    """Return mean L + 2 lam Var(L - L*), the sample variance, computed the obvious way."""
    module = made.setup.layout.write(made.setup.module, x)
    federation = made.setup.federation
    with torch.no_grad():
        losses = torch.stack(
            [
                torch.nn.functional.cross_entropy(module(inputs), target)
                for inputs, target in (federation.train.client(k) for k in range(len(federation)))
            ]
        )
    gaps = losses - made.setup.lstar
    return float(losses.mean() + 2 * lam * gaps.var())


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("lam", [0.0, 0.3, 2.0])
@pytest.mark.filterwarnings("ignore:eagle")
def test_weights_are_the_gradient_of_the_objective(engine, lam):
    # Validation is a copy of training, so that the gaps are those of the descended loss.
    base = unlike_clients((6, 4, 9))
    x = np.concatenate([base.train.x, base.train.x])
    y = np.concatenate([base.train.y, base.train.y])
    owner = np.concatenate([base.train.owner, base.train.owner])
    part = np.repeat(["train", "validation"], len(base.train))
    twin = fp.Federation.from_arrays(x, y, owner, part, outputs=3)
    text = f"eagle(lam={lam}, v_min=None, weights=fresh, normalise=none)"
    lr = 0.05
    made = experiment(twin, text, engine, solver=fp.Solver(lr=lr, steps=1))
    for _ in range(2):
        start = made.server.x
        made.advance()
        moved = made.server.x - start
        h = 1e-6
        slopes = []
        for j in range(len(start)):
            shift = torch.zeros_like(start)
            shift[j] = h
            up, down = (objective(made, start + s, lam) for s in (shift, -shift))
            slopes.append((up - down) / (2 * h))
        torch.testing.assert_close(moved, -lr * vector(*slopes), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.3])
def test_on_two_parabolas_it_ends_at_the_minimum_of_the_objective(lam):
    # Losses (x - 2)^2 and 4 (x + 1)^2; FedAvg stands at x = (2 - 4) / 5.
    toy = parabolas([[1.0], [4.0]], [[2.0], [-1.0]])
    made = bench(
        toy,
        f"eagle(lam={lam}, v_min=None, weights=fresh, normalise=none)",
        [0.5],
        solver=fp.Solver(lr=0.01, steps=1),
        lstar="best_validation(rounds=1)",
    )
    x = np.linspace(-1, 1, 200_001)
    gaps = np.stack([(x - 2) ** 2, 4 * (x + 1) ** 2]) - made.setup.lstar.numpy()[:, None]
    objective = gaps.mean(0) + 2 * lam * gaps.var(0, ddof=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="eagle")
        assert float(after(made, 250)) == pytest.approx(x[objective.argmin()], abs=2e-5)


def turned(seed: int) -> dict[str, float]:
    """Return the variance of the validation gaps of four methods on clients of which one is turned.

    60 training and 20 validation examples a client, one full-batch step a round.
    """
    clients = fp.datasets.eagle_synthetic(seed=seed, rotated=2).split(
        "natural", seed=seed, fractions=(0.6, 0.2, 0.2)
    )
    variance = {}
    for text in ("fedavg", "qffl(q=5)", "afl(eta=0.1)", "eagle(lam=2)"):
        result = fp.Experiment(
            clients,
            "linear",
            text,
            rounds=200,
            solver=fp.Solver(lr=0.1, steps=1),
            seed=seed,
            dtype="float64",
            lstar="best_validation(rounds=200)",
            evaluate_every=200,
        ).run()
        variance[text] = result.summary("validation")["gap_variance"]
    return variance


@pytest.mark.filterwarnings("ignore:eagle")
def test_turned_clients_have_more_equal_gaps_than_with_other_methods():
    # The claim is not one of every split: with the usual 80/10/10, ten validation examples a
    # client, the noise of the gaps is as large as what is to be shown. Nor is it one of the paper's
    # clients, where the turned one can hardly be told apart whichever way it is turned: the
    # variance is below 0.001 with FedAvg already on three of these seeds. With q-FFL, which makes
    # losses equal at the cost of all, gaps are more equal than with EAGLE on one seed (100).
    found = [turned(seed) for seed in (0, 42, 100, 200)]
    for variance in found:
        assert variance["eagle(lam=2)"] < min(variance["fedavg"], variance["afl(eta=0.1)"])
    assert sum(variance["eagle(lam=2)"] < variance["qffl(q=5)"] for variance in found) >= 3


def test_the_server_learns_the_gap_alone(unlike):
    made = experiment(unlike, "eagle(lam=0.01)")
    assert set(made.advance().reports["eagle"]) == {"gap"}
    probe = Trial(federation=unlike).experiment(
        [Eagle(lam=0.01, weights="fresh", apply="gradient")]
    )
    assert Bench(probe).advance().reports == {}


def test_a_client_without_validation_examples_has_its_gap_on_training_examples(unlike):
    made = experiment(unlike, "eagle(lam=0.01)")
    table = lstar.estimate(
        made.experiment.setup, lstar_rules.rule("best_validation(rounds=3)"), "loop"
    )
    assert float(made.setup.lstar[2]) == table["train"][2]
    assert np.isnan(table["validation"][2])
    assert bool(made.advance().reports["eagle"]["gap"].isfinite().all())
