"""The contract of parts: parts that break it are caught, by the check that is meant for it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import FedparityError
from fedparity.method import STRICT, Context, Finish, Part, Plan
from fedparity.parts import QFFL, Momentum, Prox
from fedparity.testing import CHECKS, Trial, check_part


@dataclass(frozen=True, config=STRICT)
class Good(Part):
    """A part of a user's own, in a module of their own."""

    strength: float = 1.0
    name = "good"

    def neutral(self) -> Part:
        return type(self)(strength=0.0)

    def init_client(self, x, layout):
        return {"last": torch.zeros_like(x)}

    def init_server(self, x, ctx):
        return {"rounds": torch.zeros((), dtype=torch.int64)}

    def grad(self, g, x, c):
        return g - self.strength * 0.1 * c.state["last"] + 0.0 * c.noise(len(g))

    def finish(self, delta, c):
        return Finish(delta, {"length": delta.norm()}, {"last": delta})

    def step(self, direction, up, s, ctx):
        return direction, {"rounds": s["rounds"] + 1}


def test_a_users_own_part_keeps_the_contract():
    check_part(Good())


def test_options_are_those_of_a_trial():
    check_part(Prox(mu=0.5), rounds=2, seed=5)
    with pytest.raises(TypeError):
        check_part(Prox(), patience=3)


class Rough(Good):
    """Weighs to nine digits only."""

    def weigh(self, w, up, s, ctx):
        first = torch.zeros_like(w)
        first[0] = 1e-9
        return w + first, s

    def neutral(self):
        return None


def test_a_part_that_computes_to_less_says_so_by_a_tolerance():
    check_part(Rough(), tolerance=1e-6)
    with pytest.raises(AssertionError, match="order of clients"):
        check_part(Rough())


class NeutralNot(Good):
    """Still pulls in its neutral setting."""

    def grad(self, g, x, c):
        return g * 1.0000001


class NeutralAlmost(Good):
    """Neutral to rounding, without an excuse: it computes no weights."""

    def grad(self, g, x, c):
        return g * (1 + 1e-15) if self.strength else g + 1e-16


class Batched(Good):
    """Asks whether it is stacked."""

    def grad(self, g, x, c):
        return g * (2.0 if torch._C._functorch.is_batchedtensor(g) else 1.0)


SEEN: list[int] = []


class Forgetful(Good):
    """Keeps a number where no checkpoint looks for it."""

    def step(self, direction, up, s, ctx):
        SEEN.append(ctx.round)
        return direction * (1 + 0.1 * len(SEEN)), {"rounds": s["rounds"] + 1}


class FirstIsFirst(Good):
    """Trusts the first reply more than the others."""

    def weigh(self, w, up, s, ctx):
        first = torch.zeros_like(w)
        first[0] = 0.1
        return 0.9 * w + first, s


class FullHouse(Good):
    """Assumes that everybody answers, and does not say so."""

    def step(self, direction, up, s, ctx):
        everyone = torch.zeros(ctx.population, dtype=direction.dtype)
        return direction + 0 * (everyone + up["length"]).sum(), {"rounds": s["rounds"] + 1}


class Growing(Good):
    """Remembers more every round."""

    def init_server(self, x, ctx):
        return {"rounds": torch.zeros(1, dtype=torch.int64)}

    def step(self, direction, up, s, ctx):
        return direction, {"rounds": torch.cat([s["rounds"], s["rounds"][:1]])}


class Widening(Good):
    """Hands back float64 whatever it was given."""

    def finish(self, delta, c):
        done = super().finish(delta, c)
        return Finish(done.delta.double(), done.report, done.state)


class Overwriting(Good):
    """Writes into the state it is given."""

    def step(self, direction, up, s, ctx):
        s["rounds"].add_(1)
        return direction, s


class OverwritingReplies(Good):
    """Writes into the replies it is given."""

    def combine(self, deltas, w, up, s, ctx):
        deltas.mul_(0.5)
        return w @ deltas, s


class OverwritingReceived(Good):
    """Writes into the parameters a client received."""

    def start(self, x, c):
        return c.anchor.mul_(0.5)


class Diverging(Good):
    """Ends in infinity."""

    def step(self, direction, up, s, ctx):
        return direction * 1e200, {"rounds": s["rounds"] + 1}


BROKEN = {
    "finite": [Diverging()],
    "neutral": [NeutralNot(), NeutralAlmost()],
    "engines": [Batched()],
    "resume": [Forgetful()],
    "order": [FirstIsFirst()],
    "replies": [FullHouse()],
    "schema": [Growing()],
    "dtype": [Widening()],
    "pure": [Overwriting(), OverwritingReplies(), OverwritingReceived()],
}
CASES = [(name, part) for name, parts in BROKEN.items() for part in parts]


@pytest.mark.parametrize(
    ("name", "part"), CASES, ids=[f"{name}-{type(part).__name__}" for name, part in CASES]
)
def test_a_broken_part_is_caught_by_its_check(name, part):
    with pytest.raises((AssertionError, FedparityError, RuntimeError)):
        CHECKS[name](part, Trial())


@dataclass(frozen=True, config=STRICT)
class Hiding(Part):
    """Calls a setting like a hook."""

    grad: float = 1.0  # type: ignore[assignment]
    name = "hiding"


@dataclasses.dataclass
class Melting(Part):
    """Is not frozen."""

    strength: float = 1.0
    name = "melting"


def test_settings_that_hide_a_hook_or_melt_are_caught():
    with pytest.raises(AssertionError, match="hide"):
        CHECKS["settings"](Hiding(), Trial())
    with pytest.raises(AssertionError, match="frozen"):
        CHECKS["settings"](Melting(), Trial())


@dataclass(frozen=True, config=STRICT)
class Lossy(Part):
    """Has state that a safetensors file turns into something else: none may exist."""

    name = "lossy"

    def init_server(self, x: Tensor, ctx: Context):
        return {"memory": torch.zeros(3, dtype=torch.float64)}

    def plan(self, s, probe, ctx):
        return Plan(state={"memory": s["memory"] + ctx.round / 7})

    def step(self, direction, up, s, ctx):
        return direction * (1 + s["memory"].sum()).to(direction.dtype), s


def test_state_of_any_type_survives_a_resume():
    CHECKS["resume"](Lossy(), Trial())


def test_full_participation_is_refused_rather_than_assumed():
    class Everyone(FullHouse):
        """Says that everybody must answer."""

        name = "everyone"
        needs = frozenset({"full_participation"})

    CHECKS["replies"](Everyone(), Trial())


def test_state_that_a_part_says_it_overwrites_may_be_written_to():
    class Declared(Overwriting):
        """Says what it writes to."""

        overwrites = frozenset({"rounds"})

    CHECKS["pure"](Declared(), Trial())


def test_a_check_says_which_part_and_by_how_much():
    with pytest.raises(AssertionError, match=r"part 'good': its neutral setting.*by \d"):
        CHECKS["neutral"](NeutralNot(), Trial())


@pytest.mark.parametrize("part", [Momentum(), QFFL()], ids=lambda part: part.name)
def test_checks_leave_global_generators_alone(part):
    before = torch.get_rng_state()
    check_part(part, rounds=2)
    assert torch.equal(torch.get_rng_state(), before)
