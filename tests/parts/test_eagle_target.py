"""EAGLE with a target: dual ascent on lambda until the gaps vary as little as asked."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, Script

from fedparity.data import datasets
from fedparity.errors import InputError
from fedparity.learning.solver import Solver
from fedparity.parts import Eagle
from fedparity.recipes import algorithm
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench

GAPS = (0.1, 0.3, -0.2)
# mean 0.066667; squares of the distances 0.001111 + 0.054444 + 0.071111 = 0.126667, over 2
VARIANCE = 0.0633333


def path(part: Eagle, *gaps: tuple[float, ...]) -> list[float]:
    """Return lambda of each round; round t weighs by the gaps of round t - 1."""
    script = Script([part])
    found = []
    for each in gaps:
        script.play(FIXTURE, gap=each)
        found.append(float(script.state("eagle")["lam"]))
    return found


def test_lambda_climbs_while_the_variance_is_above_the_target():
    # excess 0.0633333 / 0.04 - 1 = 0.583333, unit 1 / (4 * 0.2) = 1.25: 0.1 * 1.25 * 0.583333
    part = Eagle(target_variance=0.04, dual_step=0.1)
    assert path(part, *[GAPS] * 4) == pytest.approx([0.0, 0.0729167, 0.1458333, 0.21875])


def test_a_far_target_moves_lambda_by_at_most_one_unit_of_the_step():
    # 0.0633333 / 0.01 - 1 = 5.3 counts as 1: 0.1 * 1 / (4 * 0.1)
    part = Eagle(target_variance=0.01, dual_step=0.1)
    assert path(part, GAPS, GAPS) == pytest.approx([0.0, 0.25])


def test_lambda_falls_below_the_target_and_stays_at_zero():
    equal = (0.2, 0.2, 0.2)
    part = Eagle(target_variance=0.04, dual_step=0.1)
    found = path(part, GAPS, GAPS, equal, equal, equal)
    # up twice by 0.0729167, then down by 0.1 * 1.25 * (0 - 1) = 0.125 a round, to no less than 0
    assert found == pytest.approx([0.0, 0.0729167, 0.1458333, 0.0208333, 0.0], abs=1e-6)


def test_units_of_the_loss_do_not_matter():
    # losses ten times as large: variance and target a hundred times, lambda a tenth
    large = tuple(10 * gap for gap in GAPS)
    small = path(Eagle(target_variance=0.04), GAPS, GAPS)
    assert path(Eagle(target_variance=4.0), large, large)[1] == pytest.approx(small[1] / 10)


def test_lambda_that_is_given_stays():
    assert path(Eagle(lam=0.1), GAPS, GAPS) == pytest.approx([0.1, 0.1])


def test_one_known_gap_has_no_variance():
    script = Script([Eagle(target_variance=0.01)])
    for _ in range(3):
        script.play(FIXTURE[:1], clients=[0], gap=[0.5])
    assert float(script.state("eagle")["lam"]) == 0.0


def test_a_target_of_zero_is_refused():
    with pytest.raises(InputError, match="target_variance"):
        algorithm("eagle(target_variance=0)")


def reached(part: Eagle, rounds: int) -> list[dict[str, float]]:
    """Return what is logged each round on synthetic clients like the EAGLE paper's."""
    federation = datasets.eagle_synthetic(n=500, rotated=2).split("natural", seed=3)
    made = Bench(
        Experiment(
            federation,
            "linear",
            [part],
            rounds=rounds,
            solver=Solver(lr=0.3),
            dtype="float64",
            lstar="best_validation(rounds=200)",
        )
    )
    log = []
    for _ in range(rounds):
        made.advance()
        log.append(part.tell(made.server.parts["eagle"]))
    return log


def test_a_feasible_target_is_met():
    fedavg = reached(Eagle(lam=0.0), 120)[-1]["gap_variance"]
    log = reached(Eagle(target_variance=1e-3), 160)
    assert fedavg > 1.5e-3
    assert log[-1]["gap_variance"] == pytest.approx(1e-3, rel=0.02)
    assert log[-1]["lam"] == pytest.approx(log[-2]["lam"], abs=0.02)
    assert log[-1]["lam"] > 1


def test_a_loose_target_leaves_fedavg_alone_in_the_end():
    fedavg = reached(Eagle(lam=0.0), 120)[-1]["gap_variance"]
    log = reached(Eagle(target_variance=0.01), 120)
    assert max(entry["lam"] for entry in log) > 0  # the first models are far apart
    assert log[-1]["lam"] == 0.0
    assert log[-1]["gap_variance"] == pytest.approx(fedavg, rel=1e-3)


def test_weights_follow_the_lambda_that_was_reached():
    script = Script([Eagle(target_variance=0.04, dual_step=0.1)])
    script.play(FIXTURE, gap=GAPS)
    plan = script.algorithm.parts[0].plan(script.state("eagle"), {}, script.context)
    # lambda is 0.0729167, 4 lambda K / (K - 1) six times that
    v = torch.tensor([1 + 6 * 0.0729167 * (gap - 0.2 / 3) for gap in GAPS]).double()
    wanted = v * 3**0.5 / v.norm()
    torch.testing.assert_close(plan.each["weight"], wanted, atol=1e-6, rtol=0)


def test_lambda_does_not_wind_up_above_the_trust_region():
    # Gaps apart: (1 - 0) * 2 / (4 * 3 * (0.4 - 0)) = 0.416667 is all that the region allows.
    # Gaps near, variance 0.0025: each round takes 0.1 / 0.4 * (1 - 0.25) = 0.1875 off.
    part = Eagle(target_variance=0.01, dual_step=0.1)
    apart, near = (0.0, 0.2, 1.0), (0.0, 0.05, 0.1)
    found = path(part, *[apart] * 100, *[near] * 4)
    assert found[99:] == pytest.approx([0.416667, 0.416667, 0.229167, 0.041667, 0.0], abs=1e-6)
