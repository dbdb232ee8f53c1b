"""FedOpt: FedAdam, FedYogi and FedAdagrad."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, Script, matrix, vector

from fedparity.errors import InputError
from fedparity.parts import Adaptive
from fedparity.recipes import algorithm

FIRST, SECOND = matrix((0.3, -0.1)), matrix((0.1, 0.2))


def two_rounds(part: Adaptive):
    script = Script([part], vector(0, 0), n=[1])
    return script.play(FIRST), script.play(SECOND), script.state("adaptive")


# beta1 = 0.5, beta2 = 0.75, eta = 1, tau = 0.1, so V_0 = 0.01
# M: 0.5 (0.3, -0.1) = (0.15, -0.05), then 0.5 M + 0.5 (0.1, 0.2) = (0.125, 0.075)
# D^2: (0.09, 0.01), then (0.01, 0.04)
M_1, M_2 = vector(0.15, -0.05), vector(0.125, 0.075)
CASES = {
    # 0.75 V + 0.25 D^2: (0.03, 0.01), then (0.025, 0.0175)
    "adam": (vector(0.03, 0.01), vector(0.025, 0.0175)),
    # V - 0.25 D^2 sign(V - D^2): V < D^2 grows (0.01 + 0.0225), V = D^2 stays; then
    # 0.0325 - 0.0025 = 0.03 as V > D^2 = 0.01, and 0.01 + 0.01 = 0.02 as V < D^2 = 0.04
    "yogi": (vector(0.0325, 0.01), vector(0.03, 0.02)),
    # V + D^2: (0.1, 0.02), then (0.11, 0.06)
    "adagrad": (vector(0.1, 0.02), vector(0.11, 0.06)),
}


@pytest.mark.parametrize("rule", CASES)
def test_two_rounds_by_hand(rule):
    v_1, v_2 = CASES[rule]
    first, second, state = two_rounds(Adaptive(rule=rule, eta=1.0, beta1=0.5, beta2=0.75, tau=0.1))
    x_1 = M_1 / (v_1.sqrt() + 0.1)
    torch.testing.assert_close(first, x_1)
    torch.testing.assert_close(second, x_1 + M_2 / (v_2.sqrt() + 0.1))
    torch.testing.assert_close(state["m"], M_2)
    torch.testing.assert_close(state["v"], v_2)


def test_there_is_no_bias_correction():
    # Adam's first step would be eta D / (|D| + tau) with one; without, M = 0.1 D, V = 0.01 D^2 + ..
    x = Script([Adaptive(eta=1.0, tau=1e-3)], vector(0, 0), n=[1]).play(matrix((1, 1)))
    wanted = 0.1 / ((0.99e-6 + 0.01) ** 0.5 + 1e-3)
    torch.testing.assert_close(x, vector(wanted, wanted))


def test_yogi_compares_with_the_square_of_the_direction():
    # V = 0.25 lies between D^2 = 0.09 and D = 0.3: only the square makes V fall
    script = Script([Adaptive(rule="yogi", beta2=0.5, tau=0.5)], vector(0.0), n=[1])
    script.play(matrix((0.3,)))
    torch.testing.assert_close(script.state("adaptive")["v"], vector(0.25 - 0.5 * 0.09))


def test_size_that_never_changes_is_fedavg_with_the_servers_rate():
    script = Script([Adaptive(eta=0.5, beta1=0.0, beta2=1.0, tau=1e-12)])
    ones = {"m": vector(0, 0), "v": vector(1, 1)}
    script.server = script.server._replace(parts={"adaptive": ones})
    plain = Script([]).play(FIXTURE) - vector(1, 2)
    torch.testing.assert_close(script.play(FIXTURE), vector(1, 2) + 0.5 * plain)


def test_it_scales_the_direction_of_any_weighting():
    # the first step is eta M / (sqrt V + tau) of the direction that qffl's weights make
    text = "qffl(q=0)+adaptive(eta=1)"
    x = Script(algorithm(text).parts).play(FIXTURE, loss=[1, 2, 3], norm2=[1, 1, 1])
    d = FIXTURE.mean(0)
    wanted = vector(1, 2) + 0.1 * d / ((0.99e-6 + 0.01 * d**2).sqrt() + 1e-3)
    torch.testing.assert_close(x, wanted)


def test_recipes_are_the_papers_settings():
    adam, yogi, adagrad = (algorithm(f"fed{r}").parts[0] for r in ("adam", "yogi", "adagrad"))
    assert (adam.rule, adam.beta1, adam.beta2, adam.tau) == ("adam", 0.9, 0.99, 1e-3)
    assert (yogi.rule, yogi.beta1, yogi.beta2, yogi.tau) == ("yogi", 0.9, 0.99, 1e-3)
    assert (adagrad.rule, adagrad.beta1, adagrad.tau) == ("adagrad", 0.0, 1e-3)


def test_adagrad_has_no_first_moment_however_it_is_written():
    for text in ("fedadagrad(eta=1, tau=0.1)", "adaptive(rule=adagrad, eta=1, tau=0.1)"):
        (part,) = algorithm(text).parts
        first, second, _ = two_rounds(part)
        torch.testing.assert_close(first, FIRST[0] / (CASES["adagrad"][0].sqrt() + 0.1))
        step = SECOND[0] / (CASES["adagrad"][1].sqrt() + 0.1)
        torch.testing.assert_close(second - first, step)


def test_scale_of_zero_is_refused():
    with pytest.raises(InputError, match="tau"):
        algorithm("fedadam(tau=0)")  # a coordinate that never moved would be 0 / 0
