"""FedAvgM: momentum on the server."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, Script, vector

from fedparity.parts import AFL, Momentum


def test_two_rounds_by_hand():
    # v = D, then 0.5 D + D; x = (1, 2) + D + 1.5 D with D = (-0.175, -0.2)
    script = Script([Momentum(beta=0.5)])
    torch.testing.assert_close(script.play(FIXTURE), vector(0.825, 1.8))
    torch.testing.assert_close(script.play(FIXTURE), vector(1 - 2.5 * 0.175, 2 - 2.5 * 0.2))
    torch.testing.assert_close(script.state("momentum")["v"], 1.5 * vector(-0.175, -0.2))


def test_without_memory_it_is_fedavg_to_the_bit():
    one, other = Script([Momentum(beta=0.0)]), Script([])
    for _ in range(3):
        assert torch.equal(one.play(FIXTURE), other.play(FIXTURE))


def test_dampening_takes_weight_off_the_new_direction():
    script = Script([Momentum(beta=0.9, dampening=0.9)])
    torch.testing.assert_close(script.play(FIXTURE), vector(1 - 0.0175, 2 - 0.02))


def test_equal_directions_add_up_to_one_over_one_minus_beta():
    script = Script([Momentum(beta=0.5)])
    for _ in range(60):
        script.play(FIXTURE)
    torch.testing.assert_close(script.state("momentum")["v"], 2 * vector(-0.175, -0.2))


@pytest.mark.parametrize("order", [0, 1])
def test_it_remembers_the_aggregate_of_whatever_weighs(order):
    parts = [AFL(eta=1.0, order="weights_first"), Momentum()]
    script = Script(parts[::-1] if order else parts)
    script.play(FIXTURE, loss=(1.0, 2.0, 0.5))
    # All weight is on the second client.
    torch.testing.assert_close(script.state("momentum")["v"], vector(0.2, -0.1))
