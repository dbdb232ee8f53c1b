"""The contract, over all parts of the table and their variants: a new part needs no new line."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
import torch
from scripted import small_net

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import PARTS, Part
from fedparity.testing import CHECKS, Bench, Trial, unlike_clients
from fedparity.testing.checks import (
    check_engines,
    check_finite,
    check_order,
    check_replies,
    check_resume,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*gives no privacy")

VARIANTS: dict[str, list[dict[str, object]]] = {
    "aaggff": [{"solver": "ftrl", "cdf": "gumbel"}, {"cdf": "frechet"}],
    "afl": [{"order": "weights_first"}, {"eta": 1.0, "initial": "size"}, {"average": True}],
    "apfl": [{"adaptive": True, "alpha": 0.3}],
    "ditto": [{"lam": 0.0}],
    "dp_sgd": [{"noise": 0.0, "clip": 0.2}],
    "paper_dp": [{"noise": 50.0}],
    "dp_client": [
        {"where": "clients", "noise": 0.5, "clip": 0.3},
        {"quantile": 0.5, "clip": 0.1},
        {"quantile": 0.5, "where": "clients", "cap": 2.0},
    ],
    "eagle": [
        {"weights": "fresh", "lam": 0.1},
        {"normalise": "none", "v_min": 0.5, "apply": "gradient"},
        {"normalise": "l2_unit", "max_ratio": 2.0, "weights": "fresh", "apply": "gradient"},
    ],
    "cap": [{"share": 0.6}],
    "geometric_median": [{"nu": 0.1, "iterations": 20}],
    "multi_krum": [{"faulty": 0.4, "single": True}],
    "norm_clip": [{"factor": 0.5}],
    "trimmed_mean": [{"share": 0.3}],
    "core_fed": [{"M": 1.2, "prior": "size"}],
    "delta_fl": [{"theta": 0.4, "exact_boundary": True}],
    "feddisco": [{"metric": "l2", "whole": "clients"}, {"metric": "cosine", "normalise": "sum"}],
    "fairfed": [{"metric": "statistical_parity", "versus": "b"}, {"beta": 0.01, "positive": 2}],
    "fedfb": [{"alpha": 5.0, "positive": 0}],
    "fedminmax": [{"apply": "loss", "eta": 1.0}],
    "fedheal": [{"threshold": 0.6, "beta": 1.0}],
    "fedfa": [{"momentum": "heavy"}, {"momentum": "easyfl", "alpha": 0.2}],
    "gifair": [{"apply": "gradient"}],
    "maxfl": [{"threshold": 1.0}],
    "focus": [{"models": 3, "spread": 1.0, "clamp": 0.5}],
    "fedrep": [{"layers": 2, "share": 0.9}, {"layers": ("hidden1",)}],
    "finetune": [{"steps": 1}],
    "lp_proj": [{"lam": 1.0, "size": 3, "p": 2.0}, {"p": 1.5, "beta": 0.5}],
    "momentum": [{"beta": 0.5, "dampening": 0.5}],
    "prox": [{"mu": 5.0}],
    "propfair": [
        {"M": 1.0, "beyond": "loss_over_eps"},
        {"M": 2.0, "beyond": "loss_over_M"},
    ],
    "qffl": [{"q": 5.0}, {"q": 0.1, "static_step": True, "by_size": True}, {"signal": "post"}],
    "fedeba_plus": [
        {"alpha": 0.9, "theta": 90.0},
        {"alpha": 0.9, "theta": 30.0, "clip": None},
        {"alpha": 0.5},
        {"alpha": 0.5, "aggregate": "given"},
    ],
    "fedmdfg": [{"theta": 80.0, "s": 2}],
    "fedmgda_plus": [{"eps": 1.0, "length": "unit"}],
    "rank_core_fed": [{"pool": 2}],
    "scaff_pd": [{"worst": 0.5, "theta": 0.5, "rho": 0.0}],
    "scaffold": [{"option": 1}],
    "pgvc": [
        {"mode": "penalty", "layers": 1},
        {"mode": "scalar", "layers": ("hidden1", "out"), "rho": "previous"},
        {"level": 0.1, "layers": (0, -1)},
    ],
    "term": [{"t": -1.0, "prior": "size"}, {"t": 2.0, "inner": 1.5}, {"inner": -1.0}],
    "varp": [{"scaled": True}],
}
"""Settings besides the defaults that take another way through a part."""


def same_twice(name: str, **settings: object) -> Part:
    """Return a part whose noise, if it has any, can be made again."""
    seeded = {"seeded": True} if hasattr(PARTS[name], "seeded") else {}
    return PARTS[name](**settings, **seeded)


EXAMPLES = [
    pytest.param(same_twice(name, **settings), id=f"{name}-{number}")
    for name in PARTS
    for number, settings in enumerate([{}, *VARIANTS.get(name, [])])
]


FEW = ("neutral", "engines", "replies", "finite")
"""The checks of a further way through a part; its default setting keeps them all."""
CONTRACT = [
    pytest.param(same_twice(name, **settings), CHECKS[check], id=f"{name}-{number}-{check}")
    for name in PARTS
    for number, settings in enumerate([{}, *VARIANTS.get(name, [])])
    for check in (FEW if number else CHECKS)
]


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial()


@pytest.mark.parametrize(("part", "check"), CONTRACT)
def test_the_part_keeps_the_contract(part, check, trial):
    check(part, trial)


@pytest.mark.filterwarnings("ignore:pgvc")
@pytest.mark.parametrize("part", EXAMPLES)
def test_a_part_says_truly_whether_it_keeps_the_weights_it_is_given(part, unlike):
    if part.alone:
        return

    def moved(weighting: str) -> torch.Tensor:
        known = {"solver": fp.Solver(lr=0.1, steps=2), "lstar": "best_validation(rounds=1)"}
        made = fp.Experiment(
            unlike, small_net, [part], weighting=weighting, dtype="float64", **known
        )
        bench = Bench(made)
        bench.advance()
        state = (value for part in bench.server.parts.values() for value in part.values())
        return torch.cat([bench.server.x, *(value.flatten() for value in state)])

    same = torch.equal(moved("size"), moved("uniform"))
    assert same == (part.own_weights is not None)


@pytest.mark.parametrize("part", EXAMPLES)
def test_the_advice_of_a_part_names_a_setting_of_its_own(part):
    if part.softens:
        direction, setting = part.softens.split()
        assert direction in ("lower", "raise")
        assert hasattr(part, setting)


def test_variants_are_of_parts_in_the_table():
    assert set(VARIANTS) <= set(PARTS)


EPOCHS = Trial(
    federation=unlike_clients((5, 3, 8, 4)),
    solver=fp.Solver(lr=0.1, epochs=1, batch=3),
    rounds=2,
)


@pytest.mark.parametrize("name", PARTS)
def test_engines_agree_where_clients_take_unlike_numbers_of_steps(name):
    check_engines(same_twice(name), EPOCHS)


PAIRS = list(combinations(["qffl", "prox", "momentum", "local", "eagle", "afl"], 2))


def composed(pair: tuple[str, str], engine: str, federation: fp.Federation) -> fp.Experiment:
    return fp.Experiment(
        federation,
        small_net,
        "+".join(pair),
        rounds=2,
        solver=fp.Solver(lr=0.1, steps=2, batch=4),
        dtype="float64",
        engine=engine,
        lstar="best_validation(rounds=1)",
    )


def refusal(pair: tuple[str, str], federation: fp.Federation) -> str:
    try:
        composed(pair, "loop", federation)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore:eagle")
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_a_pair_of_parts_runs_alike_on_both_engines_or_is_refused_by_name(pair, unlike):
    if refused := refusal(pair, unlike):
        assert all(f"'{name}'" in refused for name in pair)
        return
    loop, vmap = (
        composed(pair, engine, unlike).run().clients.select_dtypes("float").to_numpy()
        for engine in ("loop", "vmap")
    )
    assert loop == pytest.approx(vmap, rel=1e-11, abs=1e-13, nan_ok=True)


def test_weighting_by_loss_refuses_a_second_weighting():
    for pair in permutations(["afl", "eagle", "qffl"], 2):
        with pytest.raises(InputError, match="would overwrite the weights"):
            fp.algorithm("+".join(pair))


FURTHER = ["term(t=2, inner=1.5)", "dp_client(where=clients, noise=0.5, clip=0.3, seeded=true)"]
"""Further ways through a part that keep all checks, with those above."""


@pytest.mark.parametrize("text", FURTHER)
@pytest.mark.parametrize("check", [check_resume, check_order], ids=["resume", "order"])
def test_tilted_examples_and_noise_of_the_clients_keep_the_whole_contract(text, check, trial):
    (part,) = fp.algorithm(text).parts
    check(part, trial)


def test_the_contract_holds_for_a_federation_of_one_client():
    alone = Trial(federation=unlike_clients((5,)), rounds=2)
    for name in ("afl", "eagle", "local", "momentum", "prox", "qffl"):
        for check in (check_engines, check_finite, check_resume, check_replies):
            check(same_twice(name), alone)
