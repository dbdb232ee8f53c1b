"""LSR: local self-regularisation against noisy labels."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripted import after, bench, small_net
from torch import Tensor

from fedparity.data import Federation
from fedparity.learning.augmentation import colour, rotate, usual
from fedparity.learning.models import linear
from fedparity.learning.solver import Solver
from fedparity.learning.task import Classification
from fedparity.method import Client, Finish, Part
from fedparity.parts import LSR
from fedparity.testing import Bench, unlike_clients

DRAW = torch.Generator().manual_seed(0)
FIRST, SECOND = torch.randn(2, 5, 3, dtype=torch.float64, generator=DRAW)
TARGET = torch.tensor([0, 1, 2, 0, 1])


def mix(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_without_agreement_sharpening_and_view_it_is_cross_entropy(lam):
    part = LSR(gamma=0, sharpen=1.0)
    found = part.robust(FIRST, FIRST, TARGET, mix(lam), 0.0)
    torch.testing.assert_close(found, F.cross_entropy(FIRST, TARGET, reduction="none"))


def test_loss_is_that_of_the_paper():
    lam, gamma = 0.3, 0.4
    p = lam * FIRST.softmax(-1) + (1 - lam) * SECOND.softmax(-1)
    sharp = p**2 / (p**2).sum(-1, keepdim=True)  # T_s = 1/2
    q1, q2 = (3 * FIRST).softmax(-1), (3 * SECOND).softmax(-1)  # T_d = 1/3
    middle = (q1 + q2) / 2
    agreement = divergence(q1, middle) / 2 + divergence(q2, middle) / 2
    wanted = -sharp[torch.arange(5), TARGET].log() + gamma * agreement
    torch.testing.assert_close(LSR().robust(FIRST, SECOND, TARGET, mix(lam), gamma), wanted)


def agreement(first: Tensor, second: Tensor) -> Tensor:
    part = LSR()
    with_it, without = (part.robust(first, second, TARGET, mix(0.5), g) for g in (1.0, 0.0))
    return with_it - without


def test_agreement_is_symmetric_and_zero_for_equal_views():
    torch.testing.assert_close(agreement(FIRST, SECOND), agreement(SECOND, FIRST))
    torch.testing.assert_close(agreement(FIRST, FIRST), torch.zeros(5).double())
    assert float(agreement(FIRST, SECOND).min()) > 0
    assert float(agreement(100 * FIRST, 100 * SECOND).max()) <= math.log(2) + 1e-12


def test_certain_and_wrong_predictions_have_a_finite_loss():
    sure = torch.tensor([[800.0, 0.0]])
    found = LSR().robust(sure, sure, torch.tensor([1]), torch.tensor(0.5), 0.4)
    assert bool(found.isfinite().all())


def test_form_of_the_code():
    lam, gamma = 0.3, 0.4
    far = 4 * FIRST  # some distilled probabilities fall below 1e-6
    p = lam * far.softmax(-1) + (1 - lam) * SECOND.softmax(-1)
    sharp = p**2 / (p**2).sum(-1, keepdim=True)
    q1 = (3 * far).softmax(-1).clamp(1e-6, 1.0)
    q2 = (3 * SECOND).softmax(-1).clamp(1e-6, 1.0)
    middle = (q1 + q2) / 2
    both = (q1 * (q1 / middle).log() + q2 * (q2 / middle).log()) / 2
    twice = q1.softmax(-1)
    wanted = (
        F.cross_entropy(sharp, TARGET, reduction="none")  # log-softmax of probabilities
        + gamma * both.mean(-1)  # over classes too
        - 0.6 * (twice * twice.log()).sum(-1)
    )
    assert float((3 * far).softmax(-1).min()) < 1e-6
    found = LSR(form="code").robust(far, SECOND, TARGET, mix(lam), gamma)
    torch.testing.assert_close(found, wanted)


def trained_on(part: LSR, round: int) -> Tensor:
    """Return what is descended in a step of a round of 20: the draws are the same in each."""
    c = Client(
        0.1,
        round,
        None,
        progress=round / 20,
        anchor=torch.zeros(1).double(),
        seed=torch.tensor(7),
        purpose="lsr.loss",
        inputs=FIRST,
        predict=lambda x: x,
        augment=lambda x, u: SECOND,
    )
    return part.loss(torch.zeros(5), FIRST, TARGET, c)


@pytest.mark.parametrize(("round", "share"), [(1, 0.25), (2, 0.5), (4, 1.0), (9, 1.0)])
def test_agreement_warms_up(round, share):
    full = trained_on(LSR(warmup=0), round) - trained_on(LSR(gamma=0), round)
    found = trained_on(LSR(), round) - trained_on(LSR(gamma=0), round)
    torch.testing.assert_close(found, share * full)


def test_judgement_draws_nothing():
    seen = []

    def view(u: Tensor) -> Tensor:
        seen.append(u)
        return SECOND

    part = LSR()
    found = [part.judge(torch.zeros(5), FIRST, TARGET, view, 0.1) for _ in range(2)]
    assert torch.equal(*found)
    assert torch.equal(*seen)
    torch.testing.assert_close(found[0], part.robust(FIRST, SECOND, TARGET, mix(0.5), 0.2))


def images(seed: int = 0) -> Federation:
    """Return three clients of grey 6 x 6 images."""
    rng = np.random.Generator(np.random.Philox(seed))
    x, y = rng.standard_normal((15, 1, 6, 6)), rng.integers(0, 3, 15)
    return Federation.from_arrays(x, y, np.repeat(range(3), 5), ["train"] * 15, outputs=3)


def reported(algorithm: str, engine: str, part: str) -> tuple[Tensor, Tensor, Bench]:
    made = bench(
        images(), algorithm, solver=Solver(lr=0.1, steps=2, batch=3), model=linear, engine=engine
    )
    x, replies = made.server.x, made.advance()
    return replies.reports[part]["loss"], x + replies.deltas, made


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("signal", ["pre", "post"])
def test_reported_losses_are_the_robust_ones(signal, engine):
    start = bench(images(), "fedavg", solver=Solver(), model=linear).server.x
    losses, ends, made = reported(f"fedeba(signal={signal})+lsr", engine, "fedeba")
    layout, module = made.setup.layout, copy.deepcopy(made.setup.module).eval()
    for k, end in enumerate(ends):
        layout.write(module, start if signal == "pre" else end)
        x, y = made.setup.federation.train.client(k)
        turned = rotate(x, torch.full((4,), 0.75).double())
        with torch.no_grad():
            # the first of 100 rounds, 20 of which warm up
            wanted = LSR().robust(module(x), module(turned), y, mix(0.5), 0.4 / 20).mean()
        torch.testing.assert_close(losses[k], wanted)


class Slope(Part):
    """Reports the loss and its gradient."""

    name = "slope"

    @property
    def reads(self):
        return frozenset({"loss", "grad"})

    def finish(self, delta, c):
        return Finish(delta, {"loss": c.loss, "grad": c.grad})


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_gradient_that_parts_read_is_that_of_the_robust_loss(engine):
    steps = Solver(lr=0.1, steps=2, batch=3)
    made = bench(images(), [LSR(), Slope()], solver=steps, model=linear, engine=engine)
    start = made.server

    def slope(x: Tensor) -> dict[str, Tensor]:
        made.restart()
        made.server = start._replace(x=x)
        return dict(made.advance().reports["slope"])

    found, step = slope(start.x), 1e-5
    for direction in torch.randn(3, len(start.x), dtype=torch.float64, generator=DRAW):
        ahead, behind = (slope(start.x + way * step * direction)["loss"] for way in (1, -1))
        wanted = (ahead - behind) / (2 * step)
        torch.testing.assert_close(found["grad"] @ direction, wanted, rtol=1e-6, atol=1e-8)
    plain = bench(images(), [Slope()], solver=steps, model=linear, engine=engine)
    assert not torch.allclose(plain.advance().reports["slope"]["grad"], found["grad"])


def test_losses_of_a_probe_are_the_robust_ones():
    plain, robust = (
        bench(images(), text, solver=Solver(lr=0.1), model=linear)
        for text in ("fedeba_plus(alpha=0.5)", "fedeba_plus(alpha=0.5)+lsr")
    )
    seen = {}
    for name, made in (("plain", plain), ("robust", robust)):
        asked = made.door.ask

        def ask(down, cohort, asked=asked, name=name):
            replies = asked(down, cohort)
            if down.phase == "probe":
                seen[name] = replies.reports["fedeba_plus"]["loss"]
            return replies

        made.door.ask = ask
        made.advance()
    assert not torch.allclose(seen["plain"], seen["robust"])


def test_both_engines_train_alike():
    loop, vmap = (
        after(
            bench(images(), "lsr", solver=Solver(lr=0.1, steps=3, batch=2), model=linear, engine=e),
            rounds=2,
        )
        for e in ("loop", "vmap")
    )
    torch.testing.assert_close(loop, vmap, atol=1e-12, rtol=0)


def test_every_step_and_client_mixes_differently():
    draws = []

    class Watching(LSR):
        def robust(self, first, second, target, mix, gamma):
            draws.append(float(mix))
            return super().robust(first, second, target, mix, gamma)

    made = bench(images(), [Watching()], solver=Solver(lr=0.1, steps=3), model=linear)
    after(made, rounds=2)
    assert len(set(draws)) == len(draws) == 2 * 3 * 3
    assert 0 <= min(draws) < max(draws) < 1


def test_without_images_only_sharpening_and_mixing_remain():
    steps = Solver(lr=0.1, steps=2)
    off = LSR(gamma=0.4, sharpen=1.0)  # equal views: no divergence, P is the prediction
    made = bench(unlike_clients(), [off], solver=steps, model=small_net)
    plain = bench(unlike_clients(), "fedavg", solver=steps, model=small_net)
    torch.testing.assert_close(after(made), after(plain))


def test_the_view_is_the_tasks():
    task = Classification(small_net, augment=lambda x, u: x + u[0])
    made = bench(unlike_clients(), [LSR()], solver=Solver(lr=0.1), model=task)
    usually = bench(unlike_clients(), [LSR()], solver=Solver(lr=0.1), model=small_net)
    assert not torch.allclose(after(made), after(usually))


# Augmentation


def blob(size: int = 15, width: float = 4.0) -> Tensor:
    """Return a smooth grey spot off the centre."""
    at = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    spot = torch.exp(-((at[:, None] - 2) ** 2 + (at[None] + 1) ** 2) / width)
    return spot.expand(2, 1, size, size)


def u(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_rotation_by_nothing_is_the_identity():
    torch.testing.assert_close(rotate(blob(), u(0.5, 0, 0, 0)), blob(), atol=1e-12, rtol=0)


def test_rotation_keeps_what_is_well_inside():
    turned = rotate(blob(), u(1.0, 0, 0, 0))
    assert float(turned.sum()) == pytest.approx(float(blob().sum()), rel=1e-2)
    assert float((turned - blob()).abs().max()) > 0.1


def test_rotation_by_a_quarter_turns_the_grid():
    quarter = rotate(blob(), u(1.0, 0, 0, 0), degrees=90)
    expected = [torch.rot90(blob(), turns, (-2, -1)) for turns in (1, -1)]
    assert any(torch.allclose(quarter, e, atol=1e-9) for e in expected)


def test_rotation_there_and_back():
    broad = blob(31, width=30)
    there = rotate(broad, u(1.0, 0, 0, 0))
    back = rotate(there, u(0.0, 0, 0, 0))
    torch.testing.assert_close(back, broad, atol=0.03, rtol=0)
    assert float((there - broad).abs().max()) > 0.1


def test_colour_view_that_only_flips():
    picture = torch.rand(2, 3, 4, 5, dtype=torch.float64, generator=DRAW)
    # brightness and contrast 0.6 + 0.8 * 0.5 = 1, no grey
    assert torch.allclose(colour(picture, u(0.9, 0.5, 0.5, 0.9)), picture.flip(-1))
    assert torch.allclose(colour(picture, u(0.1, 0.5, 0.5, 0.9)), picture)


def test_colour_view_that_greys():
    picture = torch.rand(2, 3, 4, 5, dtype=torch.float64, generator=DRAW)
    grey = colour(picture, u(0.1, 0.5, 0.5, 0.1))
    torch.testing.assert_close(grey, picture.mean(1, keepdim=True).expand_as(picture))


def test_usual_view_depends_on_the_inputs():
    numbers = torch.rand(4, 7)
    assert usual(numbers, u(0.9, 0, 0, 0)) is numbers
    torch.testing.assert_close(usual(blob(), u(0.9, 0, 0, 0)), rotate(blob(), u(0.9, 0, 0, 0)))
    picture = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(usual(picture, u(0.9, 0.5, 0.5, 0.9)), picture.flip(-1))
