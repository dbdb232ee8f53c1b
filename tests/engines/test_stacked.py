"""Hooks that are called on a stack as they stand do what lifted ones do."""

from __future__ import annotations

import pytest
import torch
from pydantic.dataclasses import dataclass

from fedparity.method import STRICT, Affine, Finish, Part, Plan, stacked
from fedparity.method.hints import is_stacked
from fedparity.parts import QFFL
from fedparity.testing import Bench, Trial, check_part


@dataclass(frozen=True, config=STRICT)
class Lifted(Part):
    """Scales gradients by a number the server sends to all, and reports lengths."""

    name = "both"

    def plan(self, s, probe, ctx):
        return Plan(shared={"weight": torch.tensor(0.5, dtype=ctx.x.dtype)})

    def grad(self, g, x, c):
        return c.down["weight"] * g + 0.1 * (x - c.x) + 0.2 * c.x

    def finish(self, delta, c):
        moved = (c.end - c.anchor).square().sum(-1)
        return Finish(2 * delta, {"moved": moved, "n": c.n})

    def weigh(self, w, up, s, ctx):
        return w * (1 + up["moved"].to(w.dtype) / up["n"].to(w.dtype)), s


@dataclass(frozen=True, config=STRICT)
class Stacked(Lifted):
    """The same, with the hints that engines may take."""

    def affine(self, c):
        return Affine(scale=c.down["weight"], pull=0.1, shift=0.1 * c.x)

    @stacked
    def finish(self, delta, c):
        return super().finish(delta, c)


def moved(part, engine):
    bench = Bench(Trial().experiment([part], engine=engine))
    for _ in range(3):
        bench.advance()
    return bench.tensors()


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_marked_hooks_give_what_lifted_ones_give(engine):
    marked, lifted = moved(Stacked(), engine), moved(Lifted(), "loop")
    assert marked.keys() == lifted.keys()
    for name, value in lifted.items():
        torch.testing.assert_close(marked[name], value, rtol=0, atol=1e-12)


def test_a_marked_part_keeps_the_contract():
    check_part(Stacked())


def test_only_hooks_that_can_be_stacked_are_marked():
    with pytest.raises(TypeError, match="only 'finish'"):

        @stacked
        def start(self, x, c):
            return x


def test_a_hook_written_anew_is_not_marked():
    class Mine(QFFL):
        def finish(self, delta, c):
            return super().finish(delta, c)

    assert is_stacked(QFFL.finish)
    assert not is_stacked(Mine.finish)
