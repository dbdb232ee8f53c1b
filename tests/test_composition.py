"""Every pair of parts runs, or is refused with a reason; and the identities between methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.learning.models import mlp
from fedparity.method.composition import problems, words
from fedparity.parts import PARTS, Part
from fedparity.recipes import RECIPES, algorithm
from fedparity.testing import Bench, unlike_clients

FEDERATION = unlike_clients((4, 2, 3))
EQUAL = unlike_clients((4, 4, 4))
STEPS = fp.Solver(lr=0.1, steps=2, batch=2)

MADE = {name: part() for name, part in PARTS.items()}
CLIENTS = unlike_clients((4, 2, 3, 5))
ALONE = [0.3, 0.4, 0.5, 0.6]
"""L* of these clients, given so that nothing has to be trained for it."""


def weighs(part: Part) -> bool:
    return "weigh" in part.hooks or "cleans_weights" in part.traits


def predicted(first: Part, second: Part) -> list[str]:
    """Return why a pair is refused in this order, by what both declare of themselves."""
    shared, either = first.hooks & second.hooks, ((first, second), (second, first))
    rules = {
        "stands twice": first.name == second.name,
        "both combine": "combine" in shared,
        "would be ignored": any(a.ignores_weights and weighs(b) for a, b in either),
        "would overwrite the weights": "weigh" in first.hooks and "weigh" in second.replaces,
        "both ask for": bool(shared & {"second", "examples"}),
        "decide what a client predicts": any(
            "mixture" in a.hooks and ("mixture" in b.hooks or b.personalises) for a, b in either
        ),
        "of every example by itself": any(
            "examples" in a.hooks and b.hooks & {"loss", "second"} for a, b in either
        ),
    }
    told = [reason for reason, holds in rules.items() if holds]
    told += [
        r.format(other=b.name) for a, b in either for t, r in a.conflicts.items() if t in words(b)
    ]
    told += [r.format(other=second.name) for t, r in first.behind.items() if t in words(second)]
    told += [r.format(other=first.name) for t, r in second.ahead.items() if t in words(first)]
    return told


def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return mlp(shape, outputs, hidden=3, layers=1)


def run(algorithm: str, federation: fp.Federation = FEDERATION, **conditions: object) -> Tensor:
    """Return the parameters after two rounds of a small experiment."""
    known = {"engine": "loop", "dtype": "float64", "rounds": 2, "solver": STEPS, **conditions}
    lstar = "best_validation(rounds=2)" if "eagle" in algorithm else "none"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "eagle: clients of small gaps")
        experiment = fp.Experiment(federation, net, algorithm, lstar=lstar, **known)
        module = experiment.run().model()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def moved(parts: Sequence[Part]) -> Tensor | str:
    """Return the parameters after two rounds without evaluation, or why there are none."""
    known = {"lstar": ALONE, "dtype": "float64", "engine": "vmap"}
    try:
        bench = Bench(fp.Experiment(CLIENTS, net, list(parts), 2, STEPS, **known))
    except InputError as refusal:
        return str(refusal)
    bench.advance()
    bench.advance()
    return bench.server.x


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("first", sorted(MADE))
def test_a_part_runs_with_every_other_or_is_refused_as_both_declare(first):
    """Every pair is assembled in both orders, and moved two rounds in one that is not refused."""
    for place, second in enumerate(sorted(MADE)):
        pair = MADE[first], MADE[second]
        expected = predicted(*pair)
        if refused := problems(pair):
            said = "; ".join(refused)
            assert f"'{first}'" in said or f"'{second}'" in said
            assert any(reason in said for reason in expected), (second, said, expected)
            continue
        assert not expected, second
        elsewhere = (place + sorted(MADE).index(first)) % 2 == (first < second)
        if elsewhere and not problems(pair[::-1]):
            continue
        x = moved(pair)
        if isinstance(x, str):  # refused by what only the part itself can tell
            assert f"'{first}'" in x, second
            assert f"'{second}'" in x, second
        else:
            assert bool(x.isfinite().all()), second


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fedeba_plus(alpha=0.5)+pgvc", "write 'pgvc' first"),
        ("fedeba_plus(alpha=0.5)+fedsgd", "no local steps"),
        ("fedsgd+eagle(apply=gradient)", "no local steps"),
        ("eagle(apply=gradient)+pgvc", "write 'pgvc' first"),
    ],
)
def test_what_corrects_gradients_by_its_settings_is_refused_like_what_always_does(text, reason):
    with pytest.raises(InputError, match=reason):
        run(text)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    "text",
    [
        "fedeba_plus(alpha=0.9)+lsr",
        "fedfv+momentum(beta=0.9)",
        "eagle+fedprox",
        "qffl+fedvarp",
        "fednova+pgvc",
        "fedprox(mu=0.1)+pgvc(layers=2)",
        "fedbn+pgvc",
        "fedavg+pgvc",
        "fedeba+nova+momentum+prox",
        "lsr+pgvc+prox+fedeba_plus(alpha=0.5)+nova+varp+adaptive",
    ],
)
def test_example_runs_on_both_engines(text, engine):
    assert bool(run(text, engine=engine).isfinite().all())


# The paper's tie of 15 at this learning rate is too strong for so small a model.
@pytest.mark.filterwarnings("ignore:'lp_proj_paper' diverged")
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipe_runs(name):
    assert bool(run(name, cohort=2).isfinite().all())


def test_engines_agree_on_a_long_list():
    text = "lsr+pgvc+prox+fedeba_plus(alpha=0.9, theta=30)+nova+momentum"
    loop, vmap = (run(text, engine=engine) for engine in ("loop", "vmap"))
    torch.testing.assert_close(vmap, loop, atol=1e-12, rtol=0)


def test_all_problems_of_a_composition_are_told_at_once():
    with pytest.raises(InputError, match=r"stands twice.*both combine.*would be ignored"):
        algorithm("qffl+fedfv+trimmed_mean+qffl")


# Identities between methods


def same(text: str, other: str, federation: fp.Federation = FEDERATION, **conditions: object):
    found, wanted = (run(t, federation, **conditions) for t in (text, other))
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "text",
    [
        "qffl(q=0)",
        "fedeba(tau=inf)",
        "fedeba_plus(alpha=0, tau=inf)",
        "prac_fedeba_plus(tau=inf)",
        "afl(eta=0)",
        "eagle(lam=0)",
        "fedfv(alpha=1, tau=0)",
        "uniform",
        "uniform+nova",
        "pvr(layers=0)+uniform",
        "fedpgvc(layers=0)",
        "fedbn+uniform",
        "fedprox(mu=0)+uniform",
        "momentum(beta=0)+uniform",
    ],
)
def test_methods_that_do_nothing_are_uniform_fedavg(text):
    same(text, "fedavg+uniform")


def test_nova_is_fedavg_for_equal_steps_only():
    epochs = fp.Solver(lr=0.1, epochs=1, batch=2)
    same("fednova", "fedavg", EQUAL, solver=epochs)
    unequal = [run(text, solver=epochs) for text in ("fednova", "fedavg")]
    assert not torch.allclose(*unequal)


def test_practical_fedeba_plus_is_a_mixture_of_two_fedebas():
    # one round from the same model: the weights mix, so the models do
    mixed, post, pre = (
        run(text, rounds=1)
        for text in ("prac_fedeba_plus(alpha=0.3)", "fedeba", "fedeba(signal=pre)")
    )
    torch.testing.assert_close(mixed, 0.7 * post + 0.3 * pre)


def test_pvr_on_everything_is_scaffold_and_on_nothing_fedavg():
    same("pvr(layers=2)", "scaffold", cohort=2)
    same("pvr(layers=0)", "fedavg", cohort=2)


@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_varp_with_everyone_is_fedavg(weighting):
    same("fedvarp", "fedavg", weighting=weighting)


@pytest.mark.parametrize(
    "text", ["uniform+qffl(q=0)", "fedeba(tau=inf)+uniform", "nova+fedeba", "fedpgvc+qffl"]
)
def test_weights_are_never_overwritten_in_silence(text):
    with pytest.raises(InputError, match="would overwrite the weights"):
        algorithm(text)
