"""Every pair of parts runs, or is refused with a reason; and the identities between methods."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.learning.models import mlp
from fedparity.parts import PARTS
from fedparity.recipes import RECIPES, algorithm
from fedparity.testing import unlike_clients

FEDERATION = unlike_clients((4, 2, 3))
EQUAL = unlike_clients((4, 4, 4))
STEPS = fp.Solver(lr=0.1, steps=2, batch=2)
PAIRS = list(itertools.product(sorted(PARTS), repeat=2))

# The parts of which every refusal is known; of others a pair may run or be refused.
KNOWN = frozenset(
    {"adaptive", "afl", "bn", "eagle", "fedeba", "fedeba_plus", "fedfv", "fedsgd", "local", "lsr"}
    | {"momentum", "nova", "pgvc", "prac_fedeba_plus", "prox", "pvr", "qffl", "scaffold"}
    | {"uniform", "varp"}
)
REPLACING = {"afl", "eagle", "fedeba", "fedeba_plus", "prac_fedeba_plus", "qffl", "uniform"}
WEIGHING = REPLACING | {"nova"}
IN_STEPS = {"bn", "local", "lsr", "pgvc", "prox", "pvr", "scaffold"}
REPORTING = {"afl", "eagle", "fedeba", "fedeba_plus", "fedfv", "prac_fedeba_plus", "qffl"}
CORRECTING = {"scaffold", "pvr"}
STARTING = {"bn", "local"}
GRADIENT = CORRECTING

Rule = Callable[[str, str], bool]
REFUSALS: dict[str, Rule] = {
    "stands twice": lambda a, b: a == b,
    "would overwrite the weights": lambda a, b: a in WEIGHING and b in REPLACING,
    "would be ignored": lambda a, b: "fedfv" in {a, b} and bool({a, b} & WEIGHING),
    "both combine": lambda a, b: {a, b} == {"fedfv", "varp"},
    "no local steps": lambda a, b: "fedsgd" in {a, b} and bool({a, b} & IN_STEPS),
    "write 'fedsgd' first": lambda a, b: b == "fedsgd" and a in REPORTING,
    "both correct the steps": lambda a, b: {a, b} == CORRECTING,
    "keeps on the clients": lambda a, b: bool({a, b} & CORRECTING and {a, b} & STARTING),
    "fitted its step": lambda a, b: (a, b) == ("qffl", "nova"),
    "no distribution": lambda a, b: (a, b) == ("eagle", "nova"),
    "write 'pgvc' first": lambda a, b: b == "pgvc" and a in GRADIENT,
    "write 'bn' first": lambda a, b: (a, b) == ("qffl", "bn"),
    "remembers updates without the weights": lambda a, b: {a, b} == {"eagle", "varp"},
}


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


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["+".join(pair) for pair in PAIRS])
def test_pair_runs_or_is_refused_with_a_reason(first, second):
    reasons = [reason for reason, holds in REFUSALS.items() if holds(first, second)]
    try:
        x = run(f"{first}+{second}", cohort=2)
    except InputError as refusal:
        said = str(refusal)
        assert f"'{first}'" in said or f"'{second}'" in said
        if {first, second} <= KNOWN:
            assert any(reason in said for reason in reasons), said
        return
    assert not reasons
    assert bool(x.isfinite().all())


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


def test_rules_are_about_parts_that_exist():
    assert set(PARTS) >= KNOWN


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


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipe_runs(name):
    assert bool(run(name, cohort=2).isfinite().all())


def test_engines_agree_on_a_long_list():
    text = "lsr+pgvc+prox+fedeba_plus(alpha=0.9, theta=30)+nova+momentum"
    loop, vmap = (run(text, engine=engine) for engine in ("loop", "vmap"))
    torch.testing.assert_close(vmap, loop, atol=1e-12, rtol=0)


def test_all_problems_of_a_composition_are_told_at_once():
    with pytest.raises(InputError, match=r"stands twice.*both combine.*would be ignored"):
        algorithm("qffl+fedfv+varp+qffl")


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
